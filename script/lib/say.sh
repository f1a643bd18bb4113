# Talk on stderr with the seconds since the start, so that stdout stays for machines.

# A script that is called by another goes on with its clock.
started=${BELFRY_STARTED:-$(date +%s%N)}
# A date without nanoseconds (BSD) prints a literal N: whole seconds will do there.
case $started in *N) started=${started%N}000000000 ;; esac

elapsed() { # tenths of a second since the start, as 12.3
  local now tenths
  now=$(date +%s%N)
  case $now in *N) now=${now%N}000000000 ;; esac
  tenths=$(((now - started) / 100000000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

say() { printf '[%6ss] %s\n' "$(elapsed)" "$*" >&2; }

die() {
  say "error: $*"
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

at_least() { # VERSION MINIMUM
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

usage() { # prints the comment at the top of a script as its help
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$1"
}
