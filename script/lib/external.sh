# Back end `external`: somebody else's servers, named by DATABASE_URL and AMQP_URL. Only asked
# whether they answer, never started or stopped.

external_wanted() {
  [ -n "${DATABASE_URL:-}" ] && [ -n "${AMQP_URL:-}" ] || return 1
  # What `script/services env` once printed into this shell is not somebody else's: after `down`
  # or `wipe`, or in another checkout, `up` must still start servers, whichever of their databases it names.
  local own='^postgres://belfry:belfry@127\.0\.0\.1:([0-9]+)/[^/?]+ amqp://belfry:belfry@127\.0\.0\.1:([0-9]+)/%2f$'
  ! [[ "$DATABASE_URL $AMQP_URL" =~ $own ]] || [ $((BASH_REMATCH[1] + 1)) != "${BASH_REMATCH[2]}" ]
}

# Sets host and port from SCHEME://[USER[:PASSWORD]@]HOST[:PORT][/…].
external_address() { # URL DEFAULT_PORT
  local rest=${1#*://}
  rest=${rest%%[/?]*}
  rest=${rest##*@}
  case $rest in
    \[*\]:*) host=${rest%%\]*} port=${rest##*:} ;;
    \[*\]) host=${rest%\]} port=$2 ;;
    *:*) host=${rest%%:*} port=${rest##*:} ;;
    *) host=$rest port=$2 ;;
  esac
  host=${host#\[}
  host=${host:-127.0.0.1}
}

external_database_answers() {
  local host port
  external_address "$DATABASE_URL" 5432
  postgres_answers "$host" "$port"
}

external_broker_answers() {
  local host port
  case $AMQP_URL in
    amqps:*) external_address "$AMQP_URL" 5671 && tcp_answers "$host" "$port" ;;
    *) external_address "$AMQP_URL" 5672 && rabbitmq_answers "$host" "$port" ;;
  esac
}

external_check() { # NAME URL_VARIABLE COMMAND SECONDS: says which answers, without the password
  local host port
  external_address "${!2}" '(default port)'
  if await "$4" "$3"; then
    say "$1 answers at $host:$port ($2)"
  else
    say "error: $1 does not answer at $host:$port ($2)"
    return 1
  fi
}

external_await() {
  local rc=0
  # Side by side, so that both have the ten seconds and not one after the other.
  external_check PostgreSQL DATABASE_URL external_database_answers "${1:-10}" &
  external_check RabbitMQ AMQP_URL external_broker_answers "${1:-10}" || rc=1
  wait $! || rc=1
  return $rc
}

external_status() { external_await 1 2>&1; }
