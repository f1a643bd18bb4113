# RabbitMQ of a chosen series. Where the installed one is of another, the Debian release that has the
# series is unpacked into a directory of its own, once for all checkouts, and its RabbitMQ is run
# there as the native one is: same ports, user, plugins and files. Needs root, for the directory
# (debootstrap) and for the private mounts in which it is seen as a root directory (chroot).

series_known='3.10 4.0 4.3'
series_cache=${BELFRY_CACHE:-/var/cache/belfry}

# Not here and not to be had: not a failure of what was asked. The number is sysexits' EX_UNAVAILABLE.
unavailable() {
  say "error: $*"
  exit 69
}

# Sets `series`: the one that was asked for, or that of the last `up`; empty for whatever is there.
choose_series() { # [WANTED]
  case ${1:-} in
    '')
      series=''
      if [ -r "$state/series" ]; then read -r series <"$state/series" || true; fi
      ;;
    any) series='' ;;
    *)
      case " $series_known " in *" $1 "*) ;; *)
        say "error: --rabbitmq takes any, or one of $series_known, not $1"
        exit 2
        ;;
      esac
      series=$1
      ;;
  esac
}

series_suite() {
  case $series in 3.10) echo bookworm ;; 4.0) echo trixie ;; 4.3) echo forky ;; esac
}

is_of_series() { # VERSION: also when any will do
  case $1 in "${series:-$1}" | "${series:-$1}".*) ;; *) return 1 ;; esac
}

series_root() { echo "$series_cache/rabbitmq-$series"; }

series_version() { # [ROOT]: of the unpacked one; fails when there is none
  local dir
  for dir in "${1:-$(series_root)}"/usr/lib/rabbitmq/lib/rabbitmq_server-*; do
    [ -d "$dir" ] || return 1
    echo "${dir##*/rabbitmq_server-}"
  done
}

# Builds it where it is missing. To be called with the state's lock in hand.
series_provide() {
  local root problem
  root=$(series_root)
  [ "$EUID" = 0 ] || unavailable "RabbitMQ $series is not installed, and unpacking it needs root"
  if ! [ -d "$root" ]; then
    mkdir -p "$series_cache" || unavailable "cannot create $series_cache; set BELFRY_CACHE"
    (
      # What an interrupted build has left running holds the lock as well, and is waited for.
      if have flock; then
        exec 8>"$series_cache/lock"
        flock -n 8 || say "another checkout builds RabbitMQ $series: waiting for it"
        flock -w 900 8 || unavailable "waited 900 s for $series_cache/lock"
      fi
      [ -d "$root" ] || series_build "$root"
    ) || exit
  fi
  problem=$(unshare --mount sh -c 'mount -t proc proc "$0/proc"' "$root" 2>&1) ||
    unavailable "RabbitMQ $series cannot be run here, since nothing can be mounted: $problem"
}

series_build() { # ROOT
  local root=$1 new=$1.new log=$1.log suite script mirror version
  suite=$(series_suite)
  have unshare || unavailable "there is no unshare (util-linux)"
  if ! have debootstrap || ! [ -e /usr/share/keyrings/debian-archive-keyring.gpg ]; then
    have apt-get && apt_install debootstrap debian-archive-keyring ||
      unavailable "there is no debootstrap to unpack Debian $suite with, or no key of Debian's"
  fi
  # An older debootstrap does not know the youngest names, which are all unpacked in the same way.
  script=/usr/share/debootstrap/scripts/$suite
  [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
  mirror=$("$(dirname "${BASH_SOURCE[0]}")/../standin/mirror" 2>/dev/null) || mirror=http://deb.debian.org/debian

  say "unpacking Debian $suite for RabbitMQ $series into $root (once; a minute or two)"
  rm -rf "$new"
  # Built aside and renamed, so that an interrupted build is no build. Its mounts are its own, and gone
  # with it: else the next rm would meet a living /proc.
  unshare --mount debootstrap --force-check-gpg --variant=minbase --include=rabbitmq-server \
    "$suite" "$new" "$mirror" "$script" >"$log" 2>&1 </dev/null || {
    grep -E '^[EW]:' "$log" | tail -n 5 >&2
    unavailable "Debian $suite could not be unpacked; the log is $log"
  }
  version=$(series_version "$new") || unavailable "Debian $suite has no RabbitMQ where it used to be"
  if ! is_of_series "$version"; then
    rm -rf "$new" "$log"
    unavailable "Debian $suite has RabbitMQ $version now, and no longer $series: script/lib/series.sh names the releases"
  fi
  # Debian 14 comes without, and the name server would not find its own host.
  echo '127.0.0.1 localhost' >"$new/etc/hosts"
  rm -rf "$new"/var/lib/apt/lists/* "$new"/var/cache/apt/* "$new"/usr/share/{doc,man,locale}/* "$log"
  mv "$new" "$root"
}

series_owner() { stat -c %u:%g "$(series_root)/var/lib/rabbitmq"; } # the user rabbitmq of that Debian

# Runs a command in it, as that user, with the broker's directory as /srv; replaces the shell. The
# mounts are seen by this process and its children alone, and end with them.
series_exec() { # COMMAND...
  # shellcheck disable=SC2016  # the inner shell expands it
  exec unshare --mount sh -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --bind "$1" "$0/srv" || exit
    owner=$2
    shift 2
    exec chroot --userspec="$owner" "$0" "$@"' "$(series_root)" "$mq" "$(series_owner)" "$@"
}
