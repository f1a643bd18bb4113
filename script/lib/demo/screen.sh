# What the demo says: steps on stdout with the seconds since its start, and on a terminal a line
# that moves while something is awaited. Needs say.sh.

bold='' red='' green='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
fi
width=80 turn=0
if [ -t 2 ]; then
  read -r _ width < <(stty size <&2 2>/dev/null || echo 24 80)
fi

progress() { # TEXT: replaces itself; nothing where nobody watches
  [ -t 2 ] || return 0
  local wheel='-\|/' text
  turn=$(((turn + 1) % 4))
  text=$(printf '[%6ss] %s %s' "$(elapsed)" "${wheel:turn:1}" "$1")
  printf '\r\e[K%s' "${text:0:width-1}" >&2
}

progress_done() { if [ -t 2 ]; then printf '\r\e[K' >&2; fi; }

step() { # TEXT...
  progress_done
  printf '[%6ss] %s\n' "$(elapsed)" "$*"
}

heading() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }

indented() { sed 's/^/  /; s/ *$//'; }

# ---- expectations: counted as they are judged, told at the end

verdicts=() failed=0

expect() { # TEXT COMMAND...
  local text=$1
  shift
  if "$@"; then
    verdicts+=("${green}ok${plain}      $text")
  else
    failed=$((failed + 1))
    verdicts+=("${red}FAILED${plain}  $text")
  fi
}

tell_verdicts() {
  heading 'What was expected'
  printf '  %s\n' "${verdicts[@]}"
}
