# The rules of the house that no compiler knows. Each function prints the places that break it,
# one `file:line: why` a line, and nothing when all is well.

# Tracked and new files, or all of them where there is no repository (a release archive).
house_files() { # PATTERN...
  git ls-files --cached --others --exclude-standard -- "$@" 2>/dev/null | while IFS= read -r file; do
    if [ -f "$file" ]; then echo "$file"; fi
  done
  git rev-parse --git-dir >/dev/null 2>&1 || (
    set -f
    for pattern; do find . -name target -prune -o -name .local -prune -o -type f -path "./${pattern#./}" -print; done | sed 's|^\./||'
  )
}

# Reads every Rust file once for all the rules below.
house_read() {
  house_code=$scratch/code house_strings=$scratch/strings
  house_files '*.rs' | tr '\n' '\0' >"$scratch/rust"
  : >"$house_code"
  : >"$house_strings"
  if [ -s "$scratch/rust" ]; then
    xargs -0 perl script/lib/rust-tokens.pl code <"$scratch/rust" >"$house_code" &&
      xargs -0 perl script/lib/rust-tokens.pl strings <"$scratch/rust" >"$house_strings"
  fi
}

# Lines of $1 whose content matches $2, outside the files that match $3.
house_hits() { # TOKENS CONTENT ALLOWED_FILES WHY
  grep -E "^[^:]*:[0-9]*:.*($2)" "$1" | grep -vE "^($3)" | sed -E "s|^([^:]*:[0-9]*):.*|\1: $4|" | sort -u
}

rule_one_room_for_amqp() {
  house_hits "$house_code" '\blapin\b' 'shared/src/broker|shared/src/testing|shared/tests/|loadtest/' \
    'lapin belongs to shared::broker'
}

rule_one_room_for_postgres() {
  house_hits "$house_code" '\b(tokio_postgres|deadpool_postgres)\b' \
    'shared/src/store|shared/src/testing|shared/tests/|loadtest/' 'the Postgres crates belong to shared::store'
}

rule_sql_in_sql_files() {
  house_hits "$house_strings" '\bSELECT |\bINSERT INTO\b|\bUPDATE .* SET\b|\bDELETE FROM\b' \
    'loadtest/|shared/src/testing|[^:]*/tests/' 'SQL belongs in a .sql file (or mark the line: // sql as data)'
}

rule_one_builder_of_http_clients() {
  house_hits "$house_code" '\breqwest::(blocking::)?Client(Builder)?::|\bClientBuilder\b' 'shared/src/http|loadtest/' \
    'HTTP clients are built by shared::http'
}

rule_no_stubs() {
  house_hits "$house_code" '#\[ignore|\b(todo|unimplemented)!' ' ' 'no ignored tests and no stubs'
}

rule_crates_know_only_shared() {
  local crate banned
  for crate in shared producer worker loadtest; do
    [ -f $crate/Cargo.toml ] || continue
    case $crate in
      shared) banned='producer|worker|loadtest' ;;
      loadtest) banned='producer|worker' ;;
      producer) banned='worker|loadtest|lapin|tokio-postgres|deadpool-postgres' ;;
      worker) banned='producer|loadtest|lapin|tokio-postgres|deadpool-postgres' ;;
    esac
    # The outsider's tests may run handlers in their own process; its program may not.
    awk -v banned="^($banned)\$" -v file=$crate/Cargo.toml -v outsider=$([ $crate = loadtest ] && echo 1 || echo 0) '
      /^\[/ {
        inside = /dependencies\]/ && !(outsider && /dev-dependencies/)
        name = $0
        if (sub(/^\[.*dependencies\./, "", name)) report(name)
      }
      inside && /^[A-Za-z"]/ { report($0) }
      function report(name) {
        gsub(/["'\'']/, "", name)
        sub(/[] .=].*/, "", name)
        if (name ~ banned) print file ":" NR ": this crate must not depend on " name
      }' $crate/Cargo.toml
  done
}

rule_files_stay_short() {
  local file lines
  house_files '*.rs' '*.sql' 'script/*' '.ci/*' '*.sh' | sort -u | while IFS= read -r file; do
    lines=$(wc -l <"$file")
    if [ "$lines" -gt 400 ] && ! head -n 15 "$file" | grep -qE '(//|--|#) long because:'; then
      echo "$file:1: $lines lines; split it, or say near its top: // long because: …"
    fi
  done
}

rule_tests_do_not_sleep() {
  house_hits "$house_code" '\bsleep(_until)?\(' ' ' x | grep -E '(^|/)tests/' |
    while IFS=: read -r file line _; do
      sed -n "${line}p" "$file" | grep -q '// time itself is under test' ||
        echo "$file:$line: wait for a condition with a deadline (or mark the line: // time itself is under test)"
    done
}

rule_scripts_parse() {
  local file
  house_files '*.sh' 'script/*' '.ci/*' | sort -u | while IFS= read -r file; do
    case $file in
      *.sh) ;;
      *) head -n 1 "$file" | grep -qE '^#!.*\b(ba)?sh\b' || continue ;;
    esac
    bash -n "$file" 2>&1 | sed -E 's/^([^:]*): line ([0-9]+):/\1:\2:/'
  done
}

# Where somebody happened to work is nobody else's business, and breaks on the next machine.
rule_no_workplace_paths() {
  local places main above
  places=$PWD
  if main=$(git worktree list --porcelain 2>/dev/null | sed -n '1s/^worktree //p') && [ -n "$main" ]; then
    places="$places|$main"
    above=$(dirname "$main")
    # /work, not /home or /tmp, which rightly occur as words.
    case $above in / | /root | /home | /home/* | /Users/* | /tmp | /opt | /srv | /src | /usr/* | /var/*) ;; *) places="$places|$above" ;; esac
  fi
  house_files '*' | grep -v '\.lock$' | tr '\n' '\0' |
    xargs -0 grep -InE "(^|[^A-Za-z0-9_.~/-])(/home/[a-z][a-z0-9_-]*|/Users/[A-Za-z]+|${places//./\\.})/" |
    sed -E 's/^([^:]*:[0-9]*):.*/\1: a path of one workplace/'
}
