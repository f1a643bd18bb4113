# What came of it: tables, the report, what was expected, where to look. Needs story.sh.

table() { # SQL_FILE VARIABLES...
  psql -d "$database" -P border=0 -P footer=off -P null=- "${@:2}" <"$root/script/lib/demo/$1.sql" | sed '/^$/d' | indented
}

is() { [ "$(ask "$1")" = t ]; }

names() { # our names of all processes, as rows of SQL
  local pid address name
  while read -r pid address name; do printf "(%s, '%s')," "$pid" "$name"; done <"$demo/fleet" | sed 's/,$//'
}

# On a machine that is very busy a heartbeat may come too late, and a task has a run more than the
# story tells: hence what must have happened, and not what may not.
judge() {
  expect "a fleet report was finished, with the model's summary" is "SELECT count(*) > 0 FROM artifacts a
    JOIN llm_calls c ON c.task_id = a.task_id AND c.state = 'done' WHERE a.report = 'fleet'"
  expect "the task that fails twice was retried twice, and then completed" is "SELECT state = 'completed' AND failures = 2
    AND run >= 3 FROM tasks WHERE id = '$flaky'"
  expect "the task that failed for good became a dead letter, and the webhook was told" \
    test "$(ask_http GET "$stub/alerts" | grep -o '"alert_id"' | wc -l)" -ge 1
  expect "its replay worked, once" is "SELECT bool_and(l.resolution = 'replayed') AND count(*) = 1 AND EXISTS (SELECT FROM attempts a
      WHERE a.task_id = '$broken' AND a.outcome = 'completed' AND a.run > min(l.run)) FROM dead_letters l WHERE l.task_id = '$broken'"
  expect "the killed worker's slow task was finished by another" is "SELECT count(*) FILTER (WHERE outcome = 'completed') = 1
      AND bool_or(outcome = 'lease_expired' AND worker = '$victim') AND bool_or(outcome = 'completed' AND worker <> '$victim')
    FROM attempts WHERE task_id = '$slow'"
  expect "a standby took the killed leader's place, and ticks went on" is "SELECT l.epoch > $old_epoch AND l.label <> '$old_leader'
      AND EXISTS (SELECT FROM ticks k WHERE k.epoch > $old_epoch AND k.outcome = 'enqueued') FROM leadership l"
  expect "every instant of a schedule has one tick, across the change of leaders" is "SELECT bool_and(ok) AND count(*) = 4 FROM (
      SELECT sum(count) = 1 + extract(epoch FROM max(planned_at) - min(coalesce(first_at, planned_at))) / p.seconds AS ok
      FROM ticks JOIN (VALUES ('fleet_report', 5), ('ping_model', 10), ('count_waiting', 15), ('ask_broker', 15))
        AS p (schedule, seconds) USING (schedule) GROUP BY schedule, p.seconds) AS schedules"
  expect "every published task was completed, and none was made twice" is "SELECT count(*) = 29 AND bool_and(state = 'completed')
    FROM task_overview WHERE schedule IS NULL"
  expect "nothing but that one task was given up" is "SELECT count(*) = 1 FROM dead_letters"
  expect "the ledger finds all promises kept" test "$ledger_says" = 0
}

account() {
  progress_done
  heading 'Ticks'
  table ticks
  heading 'Tasks'
  table tasks
  heading 'Who ran what'
  table workers -v processes="$(names)" -v victim="$victim"
  heading 'Besides'
  table events -v victim="$victim" -v takeover="$takeover" -v old_leader="$old_leader" -t -A
  printf '  the model counts for itself: %s\n' "$(ask_http GET "$stub/usage" | model_usage)"
  heading 'Schedules (producer schedules list)'
  producer schedules list 2>&1 | cut -c "1-$width" | indented
  heading 'The last fleet report (producer artifacts get fleet)'
  producer artifacts get fleet 2>&1 | tee "$demo/report.md" | indented
}

verdict() {
  judge
  heading 'The ledger (loadtest ledger)'
  grep -E '^ *[0-9]+  |^queues:' "$demo/ledger.txt" | indented
  [ "$ledger_says" = 0 ] || indented <"$demo/ledger.err"
  tell_verdicts
}

model_usage() { # the stub's own totals, from its JSON
  sed 's/"by_model".*//' | tr ',{}' '\n\n\n' | sed -n 's/^"\(calls\|answered\|input_tokens\|output_tokens\)":/\1 /p' |
    tr '\n' ',' | sed 's/,$//; s/_/ /g; s/,/, /g'
}

addresses() {
  local ui=http://127.0.0.1:${management_url##*:} pid address name page
  heading 'Where to look'
  if [ -z "$keep" ]; then
    printf '  %s\n' "script/demo --keep leaves the fleet running, with RabbitMQ's UI at $ui" \
      "(user belfry, password belfry) and /metrics and /readyz of each process."
  else
    printf '  %-12s %s\n' 'RabbitMQ' "$ui/#/queues (user belfry, password belfry)"
    while read -r pid address name; do
      case $name in model) page='{usage,calls,alerts}' ;; *) page='{metrics,readyz,livez}' ;; esac
      if is_ours "$pid"; then printf '  %-12s http://%s/%s\n' "$name" "$address" "$page"; fi
    done <"$demo/fleet"
    write_environment >"$demo/env"
    printf '  %-12s %s\n' 'PostgreSQL' "script/services psql -d $database" \
      'commands' ". $(printf %q "$demo/env"); producer status"
  fi
  printf '  %-12s %s\n' logs "$demo"
}

# What a shell needs to talk to the fleet.
write_environment() {
  local name
  for name in DATABASE_URL AMQP_URL RABBITMQ_VHOST RABBITMQ_API_URL RABBITMQ_API_AUTH MODEL_BASE_URL \
    MODEL_API_KEY ALERT_WEBHOOK_URL HEARTBEAT_INTERVAL HEARTBEAT_TTL RETRY_BASE; do
    printf 'export %s=%q\n' $name "${!name}"
  done
  printf 'export BELFRY_CONFIG=%q PATH=%q:$PATH\n' "$config" "$bin"
}
