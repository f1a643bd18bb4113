# Back end `docker`: one container for each server, ports on loopback, data in named volumes. A series
# of RabbitMQ is an image's tag; BELFRY_RABBITMQ_IMAGE wins, and `up` looks at what then runs.

docker_postgres_image=${BELFRY_POSTGRES_IMAGE:-postgres:17}

# The client alone is not enough, and a dead remote daemon must not hang us.
docker_usable() { have docker && timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

docker_prepare() {
  docker_name=belfry-$(hash_of "$state")
  docker_rabbitmq_image=${BELFRY_RABBITMQ_IMAGE:-rabbitmq:${series:-4}-management}
}

docker_up() { [ "$(docker inspect -f '{{.State.Running}}' "$docker_name-$1" 2>/dev/null)" = true ]; }

docker_runs() { docker_up postgres || docker_up rabbitmq; }

docker_run() { # SERVICE DOCKER_ARGS...
  local service=$1
  shift
  # A stopped one may hold old ports; the data are in the volume.
  docker rm -f "$docker_name-$service" >/dev/null 2>&1 || true
  docker run -d --name "$docker_name-$service" -v "$docker_volume:$docker_data" "$@" >/dev/null ||
    die "docker run failed for $service"
}

docker_start_postgres() {
  ! docker_up postgres || return 0
  local docker_data=/var/lib/postgresql/data docker_volume=$docker_name-postgres
  docker_run postgres -p "127.0.0.1:$pg_port:5432" -e PGDATA=$docker_data/belfry \
    -e POSTGRES_USER=belfry -e POSTGRES_PASSWORD=belfry -e POSTGRES_DB=belfry \
    "$docker_postgres_image" -c max_connections=300
}

docker_start_rabbitmq() {
  ! docker_up rabbitmq || return 0
  # No two series share their data: going back is impossible, and forward only by steps.
  local docker_data=/var/lib/rabbitmq docker_volume=$docker_name-rabbitmq${series:+-$series}
  # The host name is part of the data directory's name: a random one means an empty broker.
  docker_run rabbitmq --hostname belfry -p "127.0.0.1:$mq_port:5672" -p "127.0.0.1:$ui_port:15672" \
    -e RABBITMQ_DEFAULT_USER=belfry -e RABBITMQ_DEFAULT_PASS=belfry "$docker_rabbitmq_image" \
    bash -c 'rabbitmq-plugins enable --offline rabbitmq_management rabbitmq_shovel rabbitmq_shovel_management &&
      exec docker-entrypoint.sh rabbitmq-server'
}

docker_await_postgres() {
  await 120 postgres_answers 127.0.0.1 "$pg_port" || docker_fail postgres
}

docker_await_rabbitmq() {
  await 120 docker_rabbitmq_ready || docker_fail rabbitmq
}

docker_rabbitmq_ready() { management_answers "$ui_port" && rabbitmq_answers 127.0.0.1 "$mq_port"; }

docker_fail() {
  docker logs --tail 15 "$docker_name-$1" >&2 || true
  die "$1 was not ready after 120 s: docker logs $docker_name-$1"
}

docker_stop_postgres() { docker_stop postgres "$1"; }
docker_stop_rabbitmq() { docker_stop rabbitmq "$1"; }
docker_wipe_postgres() { docker volume rm -f "$docker_name-postgres" >/dev/null; }

docker_wipe_rabbitmq() { # of every series
  docker volume ls -q --filter "name=^$docker_name-rabbitmq" | xargs -r docker volume rm -f >/dev/null
}

docker_stop() { # SERVICE fast|immediate
  if [ "$2" = fast ]; then docker stop -t 30 "$docker_name-$1" >/dev/null 2>&1 || true; fi
  docker rm -f "$docker_name-$1" >/dev/null 2>&1 || true
}

docker_ctl() { docker exec -i "$docker_name-rabbitmq" rabbitmqctl "$@"; }

docker_interactive_psql() {
  if have psql; then exec psql "$@"; fi
  local terminal=
  if [ -t 0 ] && [ -t 1 ]; then terminal=-t; fi
  exec docker exec -i $terminal "$docker_name-postgres" psql -U belfry "$@"
}
