# What a build needs: a C compiler (for ring, and as linker) and cargo. Needs say.sh and packages.sh.

toolchain() {
  # rustup's own place, which a login shell would have added.
  PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin
  have cargo || { say "error: there is no cargo; install Rust with rustup (https://rustup.rs)" && return 1; }
  # In a subshell, because it sets and clears the trap of EXIT.
  have cc || (apt_usable && apt_install build-essential) || { say "error: there is no C compiler; install build-essential" && return 1; }
}
