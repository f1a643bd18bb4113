# What happens in the demo, act by act. Needs screen.sh and stage.sh.

producer() { "$bin/producer" --config "$config" "$@"; }

ask() { psql -d "$database" -A -t -F ' ' -c "$1"; }

until_true() { # SECONDS TEXT COMMAND...
  local end=$((SECONDS + $1)) text=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    progress "$text"
    sleep 0.2
  done
}

holds() { # CONDITION: true when it is; refreshes what the progress line says of the fleet
  local answer
  answer=$(ask "SELECT ($1), count(*) FILTER (WHERE state = 'completed') || ' tasks completed, '
      || count(*) FILTER (WHERE state = 'running') || ' running, ' || count(*) FILTER (WHERE state = 'retrying')
      || ' retrying, ' || count(*) FILTER (WHERE state = 'dead') || ' dead' FROM tasks") || return 1
  counts=${answer#* }
  [ "${answer%% *}" = t ]
}

counts=''
seen() { # SECONDS TEXT CONDITION
  local end=$((SECONDS + $1))
  until holds "$3"; do
    [ $SECONDS -lt $end ] || { step "not within $1 s: $2" && return 1; }
    progress "$counts; awaiting $2"
    sleep 0.2
  done
}

tenths_since() { # a time of `elapsed`, in seconds
  local now
  now=$(elapsed)
  now=$((${now/./} - ${1/./}))
  echo "$((now / 10)).$((now % 10))"
}

publish() { # KEY PAYLOAD OPTION...: sets `task`
  local key=$1 payload=$2 said
  shift 2
  said=$(producer publish http_call --key "$key" --payload "$payload" --json "$@" 2>&1) ||
    { step "publishing $key failed: $said" && return 1; }
  task=$(sed -n 's/.*"task_id": *"\([^"]*\)".*/\1/p' <<<"$said")
}

await_the_first_report() {
  seen 30 "the first fleet report" "SELECT count(*) > 0 FROM artifacts WHERE report = 'fleet'" &&
    step "the first fleet report is finished: the fleet's own tables and RabbitMQ's counters, summed up by the model"
}

publish_tasks() {
  local number
  for number in $(seq 24); do
    printf '{"type": "http_call", "key": "quick-%s", "payload": {"url": "%s/echo?n=%s"}}\n' "$number" "$stub" "$number"
  done >"$demo/batch.jsonl"
  producer publish --batch "$demo/batch.jsonl" >"$demo/batch.log" 2>&1 || step "the batch failed: $(tail -n 1 "$demo/batch.log")"
  publish flaky "{\"url\": \"$stub/flaky?key=flaky&fail=2\"}" && flaky=$task
  # Its one retry fails too; then somebody repairs the server, so that the replay works.
  publish broken "{\"url\": \"$stub/flaky?key=broken&fail=2\"}" --max-retry 1 && broken=$task
  for number in 3 2 1; do
    publish slow-$number "{\"url\": \"$stub/slow?ms=6000\"}" && slow=$task
  done
  step "published 24 quick tasks, 3 slow ones, one that fails twice, and one that fails for good"
}

kill_a_busy_worker() {
  local label
  seen 20 "a worker to take a slow task" "SELECT state = 'running' FROM tasks WHERE id = '$slow'"
  label=$(ask "SELECT worker FROM attempts WHERE task_id = '$slow' AND ended_at IS NULL")
  victim=$label worker_died=$(elapsed)
  kill -KILL "${label##*#}" 2>/dev/null
  step "killed $(name_of "$label") ($label) with kill -9 in the middle of task ${slow:0:8}…${slow: -4}"
}

kill_the_leader() {
  local died new
  seen 20 "a leader" "SELECT lease_until > belfry_now() FROM leadership"
  old_leader=$(ask "SELECT label FROM leadership WHERE lease_until > belfry_now()")
  old_epoch=$(ask "SELECT epoch FROM leadership")
  died=$(elapsed)
  kill -KILL "${old_leader##*#}" 2>/dev/null
  step "killed $(name_of "$old_leader") ($old_leader), the leader, with kill -9"
  seen 20 "a new leader" "SELECT epoch > $old_epoch AND lease_until > belfry_now() FROM leadership"
  new=$(ask "SELECT label FROM leadership")
  takeover=$(tenths_since "$died")
  step "$(name_of "$new") ($new) took the lead $takeover s later"
}

replay_the_dead_letter() {
  local letter
  seen 20 "the hopeless task to be given up" "SELECT state = 'dead' FROM tasks WHERE id = '$broken'"
  seen 10 "its alert" "SELECT count(*) > 0 FROM alerts WHERE sent_at IS NOT NULL"
  letter=$(ask "SELECT id FROM dead_letters WHERE task_id = '$broken' AND resolved_at IS NULL")
  step "dead letter $letter: $(ask "SELECT error_message FROM dead_letters WHERE id = $letter")"
  step "the webhook was told; its server is repaired, so: producer dead replay $letter"
  producer dead replay "$letter" >"$demo/replay.log" 2>&1 || step "the replay failed: $(cat "$demo/replay.log")"
}

await_the_rest() {
  seen 20 "the replayed task" "SELECT state = 'completed' FROM tasks WHERE id = '$broken'" &&
    step "the replayed task is completed"
  seen 20 "the task that fails twice" "SELECT state = 'completed' FROM tasks WHERE id = '$flaky'" &&
    step "the task that fails twice is completed, in attempt $(ask "SELECT run FROM tasks WHERE id = '$flaky'")"
  seen 40 "what the killed worker held" "SELECT bool_and(state IN ('completed', 'dead')) FROM tasks
    WHERE id IN (SELECT task_id FROM attempts WHERE worker = '$victim')" &&
    step "what the killed worker held is completed by others, $(tenths_since "$worker_died") s after its end"
  # Long enough that there are ticks to compare.
  seen 40 "four reports of the new leader's time" "SELECT count(*) >= 4 FROM artifacts a JOIN ticks k ON k.task_id = a.task_id
    WHERE a.report = 'fleet' AND k.epoch > $old_epoch" &&
    step "four fleet reports that the new leader ordered are finished"
}

# Who looks around shall find a whole fleet.
replace_the_killed() {
  launch producer-3 producer run
  launch worker-4 worker run
  fleet_ready '@(producer-3|worker-4)' && step "producer-3 and worker-4 replace the killed ones"
}

# No new ticks, so that the ledger may expect that nothing is left to do. A fleet that is kept is
# audited at work.
settle() {
  local settled=()
  if [ -z "$keep" ]; then
    signal_fleet TERM 'producer-*'
    until_true 15 "the producers to stop" nobody 'producer-*'
    seen 30 "the last tasks" "SELECT NOT EXISTS (SELECT FROM tasks WHERE finished_at IS NULL)" &&
      step "the producers are stopped, and nothing is left to do"
    settled=(--expect-settled)
  fi
  progress "the ledger is reckoned"
  "$bin/loadtest" --config "$config" ledger --management "$management_url" ${settled[@]+"${settled[@]}"} \
    >"$demo/ledger.txt" 2>"$demo/ledger.err"
  ledger_says=$?
}
