# Back end `native`: servers from installed packages, run by an ordinary system user, on loopback
# only, with every file below $state. Nothing of the host's own PostgreSQL or RabbitMQ is touched. Where
# another series of RabbitMQ is asked for than the installed one, series.sh says where that comes from.

postgres_minimum=14
rabbitmq_minimum=3.10 # the first with at-least-once dead letters of quorum queues

# Where packages live; `fetched` is the folder of the no-root mode and else empty.
native_find() {
  local dir fetched=
  if [ -d "$state/packages/usr" ]; then fetched=$state/packages; fi
  pg_bin='' mq_bin='' mq_version='' mq_unpacked='' native_missing=()
  erl_path=${fetched:+$fetched/usr/lib/erlang/bin:$fetched/usr/bin:}$PATH
  libraries=${fetched:+$fetched/usr/lib/$(uname -m)-linux-gnu:$fetched/lib/$(uname -m)-linux-gnu}
  for dir in "$fetched"/usr/lib/postgresql/*/bin /usr/lib/postgresql/*/bin /usr/pgsql-*/bin \
    /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin; do
    # Names sort 9 after 17, so that the version itself must decide.
    if [ -x "$dir/initdb" ] && pg_version=$(native_postgres_version "$dir") &&
      at_least "$pg_version" "$postgres_minimum" &&
      { [ -z "$pg_bin" ] || at_least "$pg_version" "$(native_postgres_version "$pg_bin")"; }; then
      pg_bin=$dir
    fi
  done
  # Not /usr/sbin/rabbitmq-server: that wrapper refuses all users but root and rabbitmq.
  for dir in "$fetched"/usr/lib/rabbitmq/bin /usr/lib/rabbitmq/bin \
    /opt/homebrew/opt/rabbitmq/sbin /usr/local/opt/rabbitmq/sbin; do
    if [ -z "$mq_bin" ] && [ -x "$dir/rabbitmq-server" ]; then
      mq_version=$(readlink -f "$dir/rabbitmq-server" | sed -n 's|.*rabbitmq_server-\([0-9.]*\)/.*|\1|p')
      if at_least "${mq_version:-99}" "$rabbitmq_minimum" && is_of_series "${mq_version:-?}"; then mq_bin=$dir; fi
    fi
  done
  if [ -z "$mq_bin" ] && [ -n "$series" ] && [ "$EUID" = 0 ]; then
    mq_unpacked=1 mq_bin=/usr/lib/rabbitmq/bin mq_version=$(series_version || echo "$series")
  fi
  [ -n "$pg_bin" ] || native_missing+=(postgresql)
  [ -n "$mq_bin" ] || native_missing+=(rabbitmq-server)
}

with_libraries() { env ${libraries:+LD_LIBRARY_PATH="$libraries"} "$@"; }

native_postgres_version() { with_libraries "$1/postgres" --version 2>/dev/null | sed -n 's/.* \([0-9][0-9.]*\).*/\1/p'; }

native_usable() {
  native_find
  [ ${#native_missing[@]} = 0 ]
}

native_prepare() {
  native_find
  # A data directory is not shared by two series: going back is impossible, and forward only by steps.
  pg=$state/pg mq=$state/mq${series:+-$series}
  if [ "$EUID" != 0 ]; then
    pg_user=$(id -un) mq_user=$(id -un)
  else
    pg_user=postgres mq_user=rabbitmq
    # Root may look after what an ordinary user started here.
    if [ -d "$pg" ]; then pg_user=$(stat -c %U "$pg"); fi
    if [ -d "$mq" ]; then mq_user=$(stat -c %U "$mq"); fi
  fi
  # A constant name: the data directory is called after the node, so that a name made from the
  # host or the port would greet a new host or port with an empty broker.
  mq_node=belfry@localhost
  mq_mark=belfry-broker:$mq:
  local home=$mq path=$erl_path paths=$libraries
  if [ -n "$mq_unpacked" ]; then home=/srv path=/usr/sbin:/usr/bin:/sbin:/bin paths=''; fi
  # The environment is built from nothing: RABBITMQ_* and PG* of the caller must not leak in.
  mq_env=(
    HOME="$home" # holds .erlang.cookie, which server and tools must share
    PATH="$path" LANG=C.UTF-8 LC_ALL=C.UTF-8 ${paths:+LD_LIBRARY_PATH="$paths"}
    RABBITMQ_NODENAME="$mq_node"
    RABBITMQ_DIST_PORT="$dist_port" # else AMQP port + 20000, which another checkout may own
    RABBITMQ_CTL_DIST_PORT_MIN="$ctl_port" RABBITMQ_CTL_DIST_PORT_MAX="$((ctl_port + 4))"
    ERL_EPMD_PORT="$epmd_port" ERL_EPMD_ADDRESS=127.0.0.1 # a private name server: 4369 may be another Erlang's
    ERL_INETRC="$home/inetrc"
    # Else /etc/rabbitmq of the host decides.
    RABBITMQ_CONF_ENV_FILE="$home/rabbitmq-env.conf" RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf"
    RABBITMQ_ADVANCED_CONFIG_FILE="$home/advanced.config"
    RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins"
    RABBITMQ_MNESIA_BASE="$home/db" RABBITMQ_LOG_BASE="$home/log" RABBITMQ_PID_FILE="$home/pid"
    # Loopback only for the distribution port too; the mark finds the process when its pid file is lost.
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} -belfry $mq_mark"
  )
}

# ---- processes

as() { # USER COMMAND...: as another user, without sudo, su or PAM, which a bare machine lacks
  local user=$1
  shift
  if [ "$EUID" = 0 ] && [ "$user" != root ]; then
    exec setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups --inh-caps=-all "$@"
  else
    exec "$@"
  fi
}

# Closes whatever else the caller had open. A server that inherits a pipe keeps `up | tee` and CI
# jobs open for ever, and one that inherits our lock keeps the lock.
close_inherited() {
  local fd
  for fd in /dev/fd/*; do
    fd=${fd##*/}
    if [ "$fd" -gt 2 ] 2>/dev/null; then eval "exec $fd>&-"; fi
  done
}

# From /, since the user postgres may not be able to enter the caller's directory.
pg_run() (
  cd /
  close_inherited
  as "$pg_user" env -i PATH="$PATH" LANG=C.UTF-8 ${libraries:+LD_LIBRARY_PATH="$libraries"} "$@"
)

mq_exec() { # replaces the shell
  cd "$mq"
  close_inherited
  if [ -n "$mq_unpacked" ]; then series_exec env -i "${mq_env[@]}" "$@"; fi
  as "$mq_user" env -i "${mq_env[@]}" "$@"
}

mq_run() (mq_exec "$@")

args_of() { # PID
  if [ -r "/proc/$1/cmdline" ]; then
    tr '\0' ' ' <"/proc/$1/cmdline"
  elif ! [ -d /proc/self ]; then
    ps -o args= -p "$1"
  fi 2>/dev/null
}

# A pid file alone proves nothing: after a crash its number may belong to anybody.
pg_pid() {
  local pid
  { read -r pid <"$pg/postmaster.pid"; } 2>/dev/null || return 1
  case $(args_of "$pid") in *"$pg"*) echo "$pid" ;; *) return 1 ;; esac
}

mq_pid() {
  local pid cmdline
  if { read -r pid <"$mq/pid"; } 2>/dev/null; then
    case $(args_of "$pid") in *"$mq_mark"*) echo "$pid" && return ;; esac
  fi
  # Killed before it wrote the file, or `up` was interrupted: look at all processes.
  cmdline=$(grep -ls -- "[b]${mq_mark#b}" /proc/[0-9]*/cmdline | head -n 1) || true
  [ -n "$cmdline" ] || return 1
  cmdline=${cmdline#/proc/}
  echo "${cmdline%/cmdline}"
}

native_runs() { pg_pid >/dev/null || mq_pid >/dev/null; }

gone() { ! kill -0 "$1" 2>/dev/null; }

# ---- PostgreSQL

native_psql() { PGPASSWORD=belfry with_libraries "$pg_bin/psql" -X -q -h 127.0.0.1 -p "$pg_port" -U belfry "$@"; }

native_init_postgres() {
  local new=$state/pg.new
  rm -rf "$new"
  mkdir -m 700 "$new"
  if [ "$EUID" = 0 ]; then chown "$pg_user" "$new"; fi
  # Built aside and renamed: an interrupted initdb leaves a directory that looks finished.
  # The password file is made inside, because another user cannot read our pipe. C.UTF-8 exists
  # everywhere; the locale of the caller may not.
  pg_run bash -c '"$1"/initdb -D "$2" -U belfry --pwfile=<(echo belfry) -A scram-sha-256 \
    -E UTF8 --locale=C.UTF-8 --no-sync' _ "$pg_bin" "$new" >"$state/initdb.log" 2>&1 </dev/null || {
    tail -n 5 "$state/initdb.log" >&2
    die "initdb failed; the log is $state/initdb.log"
  }
  mv "$new" "$pg"
}

native_start_postgres() {
  [ -d "$pg" ] || native_init_postgres
  if ! pg_pid >/dev/null; then
    # A pid of another program in the lock file (restored or restarted machine) would forbid the start.
    rm -f "$pg/postmaster.pid"
    # After a crash the server flushes its thousand files one by one, which takes seconds; Linux
    # can flush the file system at once.
    local flush=
    if [ "$(uname)" = Linux ]; then flush='-c recovery_init_sync_method=syncfs'; fi
    # TCP only: a socket path may be longer than 107 bytes and /var/run may be closed to us.
    pg_run "$pg_bin/pg_ctl" -D "$pg" -l "$pg/server.log" -W -s -o "-p $pg_port \
      -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=300 $flush" \
      start >/dev/null </dev/null || die "PostgreSQL did not start; the log is $pg/server.log"
  fi
}

native_await_postgres() {
  await 60 native_postgres_ready || {
    tail -n 5 "$pg/server.log" >&2
    die "PostgreSQL does not answer on port $pg_port; the log is $pg/server.log"
  }
  [ "$(native_psql -d postgres -tAc "SELECT count(*) FROM pg_database WHERE datname = 'belfry'")" = 1 ] ||
    native_psql -d postgres -c 'CREATE DATABASE belfry'
}

native_postgres_ready() { postgres_answers 127.0.0.1 "$pg_port" && native_psql -d postgres -c 'SELECT 1' >/dev/null 2>&1; }

native_stop_postgres() { # fast | immediate
  local pid
  pid=$(pg_pid) || return 0
  pg_run "$pg_bin/pg_ctl" -D "$pg" -m "$1" -s -w -t 30 stop >/dev/null 2>&1 </dev/null ||
    { kill -KILL "$pid" 2>/dev/null || true; }
  await 10 gone "$pid" || die "PostgreSQL (process $pid) does not stop"
}

native_wipe_postgres() { rm -rf "$pg" "$state/pg.new"; }

# ---- RabbitMQ

native_configure_rabbitmq() {
  mkdir -p "$mq/db" "$mq/log"
  cat >"$mq/rabbitmq.conf" <<C
listeners.tcp.1 = 127.0.0.1:$mq_port
management.tcp.ip = 127.0.0.1
management.tcp.port = $ui_port
default_user = belfry
default_pass = belfry
log.console = false
log.file.level = info
log.file.rotation.size = 10485760
C
  echo '[rabbitmq_management,rabbitmq_shovel,rabbitmq_shovel_management].' >"$mq/enabled_plugins"
  echo '[].' >"$mq/advanced.config"
  : >"$mq/rabbitmq-env.conf"
  # A container without /etc/hosts does not know localhost, and the node would not start.
  printf '%s\n' '{host, {127,0,0,1}, ["localhost"]}.' '{lookup, [file, native]}.' >"$mq/inetrc"
  if ! [ -s "$mq/.erlang.cookie" ]; then
    head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$mq/.erlang.cookie"
    chmod 400 "$mq/.erlang.cookie" # Erlang refuses a cookie that others can read
  fi
  if [ -n "$mq_unpacked" ]; then
    chown -R "$(series_owner)" "$mq"
  elif [ "$EUID" = 0 ]; then
    chown -R "$mq_user" "$mq"
  fi
}

native_start_rabbitmq() {
  ! mq_pid >/dev/null || return 0
  native_configure_rabbitmq
  rm -f "$mq/pid"
  # setsid: Ctrl-C in the terminal must not reach the broker. The streams are cut on the outside
  # and the background shell is replaced, since it would hold the caller's pipe and our lock.
  mq_exec bash -c 'exec $(command -v setsid) "$1/rabbitmq-server" >"$HOME/log/console.log" 2>&1' \
    _ "$mq_bin" </dev/null >/dev/null 2>&1 &
  mq_launcher=$!
}

native_await_rabbitmq() {
  await 120 native_rabbitmq_settled || die "RabbitMQ was not ready after 120 s; the logs are in $mq/log"
  native_rabbitmq_ready || {
    tail -n 15 "$mq/log/console.log" >&2
    die "RabbitMQ did not start; the logs are in $mq/log"
  }
}

native_rabbitmq_ready() { management_answers "$ui_port" && rabbitmq_answers 127.0.0.1 "$mq_port"; }

# Ready, or dead before it ever was.
native_rabbitmq_settled() {
  native_rabbitmq_ready || { [ -n "${mq_launcher:-}" ] && gone "$mq_launcher"; }
}

native_stop_rabbitmq() { # fast | immediate
  local pid signal=TERM
  [ "$1" = fast ] || signal=KILL
  if pid=$(mq_pid); then
    kill -"$signal" "$pid" 2>/dev/null || true
    await 30 gone "$pid" || { kill -KILL "$pid" 2>/dev/null || true; }
    await 10 gone "$pid" || die "RabbitMQ (process $pid) does not stop"
  fi
  if [ -d "$mq" ]; then await 10 native_name_server_gone || say "port $epmd_port is still open (epmd)"; fi
}

# The name server outlives its node; this one is ours alone. It refuses to go while it has not yet
# noticed that the node is dead, hence asked until its port is closed.
native_name_server_gone() {
  port_free "$epmd_port" || {
    mq_run epmd -port "$epmd_port" -kill >/dev/null 2>&1 </dev/null || true
    port_free "$epmd_port"
  }
}

native_wipe_rabbitmq() { rm -rf "$mq"; }

native_ctl() { mq_run "$mq_bin/rabbitmqctl" "$@"; }

native_describe() {
  if [ -n "$mq_unpacked" ]; then
    echo "PostgreSQL $pg_version is installed, RabbitMQ $mq_version is Debian $(series_suite)'s"
  else
    echo "PostgreSQL $pg_version and RabbitMQ ${mq_version:-} are installed"
  fi
}

native_interactive_psql() { with_libraries "$pg_bin/psql" "$@"; }
