# The demo's processes and what they run on: started, watched, killed, and gone at the end.
# Needs say.sh, greet.sh, state.sh and screen.sh; sets nothing on the host but files below $demo.

database=belfry_demo vhost=demo
config=$root/examples/belfry.yaml
job='' # the group that is waited for now

# Bash keeps a child in its parent's group, where Ctrl-C hits both in any order. With job control
# each gets its own, and ends when `leave` says so.
in_background() { # COMMAND...: sets `child`
  set -m
  "$@" </dev/null 9>&- &
  child=$!
  set +m
}

# ---- private servers, with a database and a virtual host of our own

servers_up() {
  if ! "$root/script/services" status >/dev/null 2>&1; then : >"$demo/servers-are-ours"; fi
  BELFRY_STARTED=$started "$root/script/services" up 9>&- || return 1
  eval "$("$root/script/services" env)"
  management_url=$RABBITMQ_MANAGEMENT_URL
}

servers_down() {
  [ -e "$demo/servers-are-ours" ] || return 0
  "$root/script/services" down >/dev/null 2>&1 9>&- && rm -f "$demo/servers-are-ours"
}

psql() { "$root/script/services" psql -X -q -v ON_ERROR_STOP=1 "$@"; }

fresh_database() {
  psql -d postgres -c 'SET client_min_messages = warning' \
    -c "DROP DATABASE IF EXISTS $database WITH (FORCE)" -c "CREATE DATABASE $database"
}

fresh_vhost() {
  local user=${AMQP_URL#*://}
  user=${user%%:*}
  ask_http DELETE "$management_url/api/vhosts/$vhost" >/dev/null || true # there was none
  ask_http PUT "$management_url/api/vhosts/$vhost" '{}' &&
    ask_http PUT "$management_url/api/permissions/$vhost/$user" '{"configure": ".*", "write": ".*", "read": ".*"}'
}

# Prints the body of an answer; true when its status is 2xx. A bare machine has no curl.
ask_http() { # METHOD http://[USER:PASSWORD@]HOST:PORT/PATH [JSON]
  local rest=${2#http://} login='' address path line status='' body=${3:-}
  path=/${rest#*/} address=${rest%%/*}
  case $address in *@*) login=${address%@*} address=${address##*@} ;; esac
  {
    exec 3<>"/dev/tcp/${address%:*}/${address##*:}" || return 1
    printf '%s %s HTTP/1.0\r\nHost: %s\r\n' "$1" "$path" "$address" >&3
    if [ -n "$login" ]; then printf 'Authorization: Basic %s\r\n' "$(printf %s "$login" | base64 -w 0)" >&3; fi
    printf 'Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&3
    IFS= read -r -t 10 status <&3
    while IFS= read -r -t 10 line <&3 && [ "$line" != $'\r' ]; do :; done
  } 2>/dev/null
  while IFS= read -r -t 10 line <&3 || [ -n "$line" ]; do printf '%s\n' "$line"; done
  exec 3>&-
  case $status in *' 2'[0-9][0-9]*) return 0 ;; *) return 1 ;; esac
}

# ---- the fleet

# Below the range that the kernel hands to outgoing connections (from 32768).
choose_fleet_ports() {
  local base tries port
  base=$(($(hash_of "$root") % 270))
  for tries in $(seq 0 269); do
    next_port=$((30000 + 10 * ((base + tries) % 270)))
    for port in $(seq "$next_port" $((next_port + 9))); do port_free "$port" || continue 2; done
    return
  done
  return 1
}

# What the fleet is told: nothing of the caller's own fleet, model or database.
fleet_environment() {
  export AMQP_URL=${AMQP_URL%/*}/$vhost DATABASE_URL=${DATABASE_URL%/*}/$database
  export RABBITMQ_VHOST=$vhost RABBITMQ_API_URL=http://${management_url##*@} RABBITMQ_API_AUTH
  RABBITMQ_API_AUTH="Basic $(printf %s "$management_url" | sed 's|.*//\(.*\)@.*|\1|' | base64 -w 0)"
  export MODEL_BASE_URL=$stub/v1 MODEL_API_KEY=none ALERT_WEBHOOK_URL=$stub/alerts
  # A crash shall be noticed in seconds, and a retry come soon.
  export HEARTBEAT_INTERVAL=1s HEARTBEAT_TTL=3s RETRY_BASE=1s
  # The model and the webhook are on this machine, whatever proxy leads out of it.
  export NO_PROXY=127.0.0.1${NO_PROXY:+,$NO_PROXY}
  export no_proxy=$NO_PROXY
}

launch() { # NAME PROGRAM ARGUMENT...: sets `address`
  local name=$1 program=$2
  shift 2
  address=127.0.0.1:$next_port
  next_port=$((next_port + 1))
  in_background env BELFRY_HTTP_ADDR="$address" "$bin/$program" --config "$config" "$@" >"$demo/$name.log" 2>&1
  disown "$child" # bash would print a line when it is killed
  echo "$child $address $name" >>"$demo/fleet"
}

# A number alone may be anybody's tomorrow; this one was given our configuration.
is_ours() { # PID
  if [ -d /proc/self ]; then
    { tr '\0' '\n' <"/proc/$1/cmdline" | grep -qxF -- "$config"; } 2>/dev/null
  else
    ps -o args= -p "$1" | grep -qF -- "$config"
  fi
}

answers() { ask_http GET "http://$1/$2" >/dev/null; }

fleet_ready() { # [NAMES]
  local pid address name page
  while read -r pid address name; do
    [[ $name == ${1:-*} ]] || continue
    is_ours "$pid" || { say "$name ended: $(tail -n 3 "$demo/$name.log")" && return 1; }
    case $name in model) page=healthz ;; *) page=readyz ;; esac
    until_true 30 "waiting for $name" answers "$address" $page || { tail -n 5 "$demo/$name.log" >&2 && return 1; }
  done <"$demo/fleet"
}

name_of() { # LABEL or PID: what we call that process
  sed -n "s/^${1##*#} [^ ]* //p" "$demo/fleet"
}

living() { # [NAMES]: their numbers
  local pid address name
  [ -r "$demo/fleet" ] || return 0
  while read -r pid address name; do
    if [[ $name == ${1:-*} ]] && is_ours "$pid"; then echo "$pid"; fi
  done <"$demo/fleet"
}

nobody() { [ -z "$(living "$1")" ]; }

signal_fleet() { # SIGNAL [NAMES]
  local pid
  for pid in $(living "${2:-*}"); do kill -"$1" "$pid" 2>/dev/null; done
}

# ---- the end

# A first TERM lets work finish, a second gives it back, and nobody survives the last.
fleet_down() {
  local signal
  for signal in TERM TERM KILL; do
    signal_fleet "$signal"
    await 3 nobody '*' && break
  done
  if nobody '*'; then rm -f "$demo/fleet"; fi
}

leave() {
  local rc=$? IFS=$' \t\n' # a trap that interrupts `IFS= read` would go on without one
  trap - EXIT
  trap '' INT TERM HUP PIPE
  progress_done
  if [ -n "$job" ]; then kill -TERM -- "-$job" 2>/dev/null; fi
  if [ -z "${stays:-}" ]; then
    progress 'stopping what was started'
    fleet_down
    servers_down
    progress_done
  fi
  exit $rc
}
