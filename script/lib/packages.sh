# Getting packages: by apt, or unpacked below $state without root.

sudo_prefix() { # prints how to become root; fails when that is not possible
  if [ "$EUID" = 0 ]; then
    return 0
  elif have sudo && { sudo -n true 2>/dev/null || { [ -t 0 ] && [ -t 2 ]; }; }; then
    echo sudo
  else
    return 1 # sudo that asks for a password without a terminal would wait for ever
  fi
}

apt_usable() { have apt-get && sudo_prefix >/dev/null; }

# Installs packages without starting or enabling what is in them.
apt_install() { # PACKAGE...
  local sudo made=() log rc=0 unit
  sudo=$(sudo_prefix) || return 1
  log=$(mktemp)
  say "apt-get install $*"

  # A package starts its service on 5432 or 5672 at once, and makes a cluster nobody asked for.
  # Both files say no for the time of this installation, and only where the host has none.
  if ! [ -e /usr/sbin/policy-rc.d ]; then
    made+=(/usr/sbin/policy-rc.d)
    printf '#!/bin/sh\nexit 101\n' | $sudo tee /usr/sbin/policy-rc.d >/dev/null
    $sudo chmod 755 /usr/sbin/policy-rc.d
  fi
  if ! [ -e /etc/postgresql-common/createcluster.conf ]; then
    made+=(/etc/postgresql-common/createcluster.conf)
    $sudo mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' | $sudo tee /etc/postgresql-common/createcluster.conf >/dev/null
  fi
  # shellcheck disable=SC2064
  trap "$sudo rm -f ${made[*]:-}" EXIT
  {
    # Another apt may hold the lock on a machine that was just started.
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq update &&
      $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y \
        install --no-install-recommends "$@"
  } >"$log" 2>&1 </dev/null || rc=$?
  $sudo rm -f ${made[@]+"${made[@]}"}
  trap - EXIT

  # policy-rc.d stops the start, but not the entry for the next boot.
  if [ $rc = 0 ] && [ -d /run/systemd/system ]; then
    for unit in "$@"; do
      case $unit in postgresql | rabbitmq-server) $sudo systemctl disable --now "$unit" >/dev/null 2>&1 || true ;; esac
    done
  fi
  [ $rc = 0 ] || tail -n 20 "$log" >&2
  rm -f "$log"
  return $rc
}

install_servers() {
  native_usable || apt_install "${native_missing[@]}" || return 1
  native_usable || { say "too old in this distribution: ${native_missing[*]}"; return 1; }
}

fetch_usable() { have apt-get && have dpkg-deb; }

# Downloads the servers and whatever of their dependencies is not installed, and unpacks them.
# The system is not touched.
fetch_servers() {
  local packages=$state/packages apt file
  ! native_usable || return 0
  say "downloading ${native_missing[*]} into $packages"
  mkdir -p "$packages/lists/partial" "$packages/archives/partial"
  # Own lists, because those of the system may be missing or years old and are root's to renew.
  # No locks: those are root's too, and nothing is installed.
  apt=(apt-get -qq -o Debug::NoLocking=1 -o Dir::State::Lists="$packages/lists" -o Dir::Cache="$packages" -o APT::Sandbox::User=)
  "${apt[@]}" update >&2 </dev/null || die "apt-get could not read the package lists"
  "${apt[@]}" -y --download-only --no-install-recommends install "${native_missing[@]}" >&2 </dev/null ||
    die "apt-get could not download ${native_missing[*]}"
  for file in "$packages"/archives/*.deb; do dpkg-deb -x "$file" "$packages"; done
  rm -rf "$packages/archives" "$packages/lists" "$packages"/*pkgcache.bin
  # Debian's erl has its own place written into it, and would start the system's or none.
  for file in "$packages"/usr/lib/erlang/bin/erl "$packages"/usr/lib/erlang/erts-*/bin/erl; do
    if [ -f "$file" ]; then sed -i "s|ROOTDIR=.*/usr/lib/erlang.*|ROOTDIR=$packages/usr/lib/erlang|" "$file"; fi
  done
  native_usable || die "still missing after the download: ${native_missing[*]}"
}
