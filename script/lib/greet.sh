# Is somebody at home? Each function speaks the first words of a protocol, with nothing but bash:
# a bare machine has neither curl nor nc.

tcp_answers() { # HOST PORT
  (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null
}

# An SSLRequest, which every PostgreSQL answers with one letter. A port that merely accepts is
# not enough: Docker's proxy accepts long before the server behind it listens.
postgres_answers() { # HOST PORT
  local letter=
  {
    exec 3<>"/dev/tcp/$1/$2" || return 1
    printf '\0\0\0\x08\x04\xd2\x16\x2f' >&3
    IFS= read -r -t 3 -n 1 letter <&3
    exec 3>&-
  } 2>/dev/null
  [ "$letter" = S ] || [ "$letter" = N ]
}

# The AMQP 0-9-1 header; a broker that is ready answers with a method frame (type 1).
rabbitmq_answers() { # HOST PORT
  local byte=
  {
    exec 3<>"/dev/tcp/$1/$2" || return 1
    printf 'AMQP\0\0\x09\x01' >&3
    IFS= read -r -t 3 -n 1 byte <&3
    exec 3>&-
  } 2>/dev/null
  [ "$byte" = $'\x01' ]
}

# True when the management UI is up and the user can log in, which comes last in a start.
management_answers() { # PORT
  case $(management_overview "$1") in *' 200 '*) return 0 ;; *) return 1 ;; esac
}

# The version that runs, by its own word; nothing when it does not answer.
management_version() { # PORT
  management_overview "$1" | sed -n 's/.*"rabbitmq_version":"\([^"]*\)".*/\1/p'
}

management_overview() { # PORT: the answer's first line and its body, one line too
  local line='' part=''
  {
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 0
    printf 'GET /api/overview HTTP/1.0\r\nAuthorization: Basic %s\r\n\r\n' \
      "$(printf belfry:belfry | base64)" >&3
    IFS= read -r -t 5 line <&3
    while IFS= read -r -t 5 part <&3; do :; done
    exec 3>&-
  } 2>/dev/null
  printf '%s\n%s\n' "$line" "$part"
}

await() { # SECONDS COMMAND...
  local deadline=$(($(date +%s) + $1))
  shift
  until "$@"; do
    [ "$(date +%s)" -lt "$deadline" ] || return 1
    sleep 0.1
  done
}
