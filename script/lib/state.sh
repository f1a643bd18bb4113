# Where the services of this checkout keep their files, and which ports they own.

hash_of() { printf %s "$1" | cksum | cut -d ' ' -f 1; }

closed_parent() { # prints the first directory above $1 that other users cannot enter
  local dir=$1 mode
  while [ "$dir" != / ]; do
    dir=$(dirname "$dir")
    [ -d "$dir" ] || continue
    mode=$(stat -c %a "$dir")
    [ $((8#$mode & 1)) = 1 ] || { echo "$dir"; return 0; }
  done
  return 1
}

# Sets `state`, and `moved` with the reason when the checkout itself cannot hold it.
choose_state() {
  local plain='^[A-Za-z0-9_./-]+$' closed owner
  moved=
  if [ -n "${BELFRY_STATE:-}" ]; then
    case $BELFRY_STATE in /*) state=$BELFRY_STATE ;; *) state=$PWD/$BELFRY_STATE ;; esac
    [[ $state =~ $plain ]] || die "BELFRY_STATE=$state: only letters, digits and . _ - / can be used"
    if [ "$EUID" = 0 ] && closed=$(closed_parent "$state"); then
      die "BELFRY_STATE=$state: $closed is closed to the users postgres and rabbitmq"
    fi
    return
  fi

  state=$root/.local/services
  if ! [[ $state =~ $plain ]]; then
    # RabbitMQ's start scripts expand some of their paths unquoted, and a space tears them apart.
    moved="the path of the checkout holds a space or another special character"
  elif [ "$EUID" = 0 ]; then
    # PostgreSQL refuses to run as root, and its own user cannot enter /root or a 0700 home.
    closed=$(closed_parent "$state") && moved="$closed is closed to the users postgres and rabbitmq"
  elif ! mkdir -p "$state" 2>/dev/null || ! [ -w "$state" ]; then
    moved="$state cannot be written by $(id -un)"
  fi
  [ -n "$moved" ] || return 0

  state=/var/tmp/belfry-$(hash_of "$EUID:$root")
  # /var/tmp is everybody's: a directory that somebody else put there first is not ours to use.
  if [ -e "$state" ]; then
    owner=$(stat -c %u "$state")
    [ "$owner" = "$EUID" ] || die "$state belongs to another user; set BELFRY_STATE"
  fi
}

port_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

block_free() { # BASE: the ports of all servers and of the command line tools
  local port
  for port in $(seq "$1" $(($1 + 5))); do
    port_free "$port" || { busy=$port; return 1; }
  done
}

# Ports are free until the servers listen: who begins in the same second must choose others.
# A directory is made by one process only; what a finished process left behind is nobody's.
reserve() { # BASE
  local taken=/tmp/belfry-ports-$EUID holder
  mkdir -p -m 700 "$taken"
  taken=$taken/$1
  if ! mkdir "$taken" 2>/dev/null; then
    holder=$(cat "$taken/pid" 2>/dev/null)
    { [ -n "$holder" ] && ! kill -0 "$holder" 2>/dev/null; } || return 1
    rm -rf "$taken"
    mkdir "$taken" 2>/dev/null || return 1
  fi
  echo $$ >"$taken/pid"
}

# Keeps the stored block of ports while something of ours listens or nobody else took it.
choose_ports() {
  local base busy tries
  if read_ports; then
    something_runs && return
    base=$pg_port
    if [ "${BELFRY_BASE_PORT:-$base}" = "$base" ] && block_free "$base"; then return; fi
    [ "${BELFRY_BASE_PORT:-$base}" != "$base" ] || say "port $busy was taken by another program: choosing others"
  fi

  if [ -n "${BELFRY_BASE_PORT:-}" ]; then
    base=$BELFRY_BASE_PORT
    block_free "$base" || die "BELFRY_BASE_PORT=$base: port $busy is in use (six in a row are needed)"
  else
    # Below the range that the kernel hands to outgoing connections (from 32768).
    base=$((20000 + 10 * ($(hash_of "$root") % 1000)))
    for tries in $(seq 100); do
      block_free "$base" && reserve "$base" && break
      [ "$tries" != 100 ] || die "no six free ports in a row from $base down to 20000; set BELFRY_BASE_PORT"
      base=$((20000 + (base - 20000 + 10) % 10000))
    done
  fi
  printf 'base=%s\n' "$base" >"$state/ports.new"
  mv "$state/ports.new" "$state/ports"
  read_ports
}

read_ports() {
  local line
  [ -r "$state/ports" ] || return 1
  read -r line <"$state/ports"
  pg_port=${line#base=}
  mq_port=$((pg_port + 1))
  ui_port=$((pg_port + 2))
  dist_port=$((pg_port + 3))
  epmd_port=$((pg_port + 4))
  ctl_port=$((pg_port + 5)) # and four more, for command line tools that run together
}

own_urls() {
  database_url=postgres://belfry:belfry@127.0.0.1:$pg_port/belfry
  amqp_url=amqp://belfry:belfry@127.0.0.1:$mq_port/%2f
  management_url=http://belfry:belfry@127.0.0.1:$ui_port
}

# Two shells that say `up` together: one works, the other waits and finds all done.
lock_state() {
  mkdir -p "$state" || die "cannot create $state"
  have flock || return 0
  exec 9>"$state/lock"
  flock -n 9 || {
    say "another script/services is at work here: waiting for it"
    flock -w 300 9 || die "waited 300 s for $state/lock"
  }
}
