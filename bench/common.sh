# What the scripts that measure share: a place for data on a disk, processes that are stopped in all cases, and the
# facts of the report. Sourced by scripts/bench-peers and scripts/bench-wan, after they set `hapax` and `compare`.
# Each leaves its results in $work/results, one line for each thing measured (bench/compare/src/results.rs).

me=$(basename "$0")
parent=${BENCH_DIR:-/var/tmp}
work=$(mktemp -d "$parent/hapax-bench-XXXXXX")
case $(stat -f -c %T "$work") in
  tmpfs | ramfs) echo "$me: $parent is in memory, where a sync costs nothing: set BENCH_DIR to a disk" >&2; rmdir "$work"; exit 1 ;;
esac

# A failure is told in one line.
export RUST_BACKTRACE=0

# Ports: away from the default ones of everything, and free, so that nothing else is measured by mistake.
port=${BENCH_PORT:-17500}
# three OFFSET: the addresses of three nodes.
three() { printf '127.0.0.1:%d\n' $((port + $1 + 1)) $((port + $1 + 2)) $((port + $1 + 3)); }
mapfile -t hapax_targets < <(three 0)
mapfile -t hapax_metrics < <(three 20)
must_be_free() {
  local address
  for address in "$@"; do
    ! (: <>"/dev/tcp/${address/://}") 2>/dev/null || { say "somebody listens on $address: set BENCH_PORT to another base"; exit 1; }
  done
}

pids=()
# stop_all [SIGNAL]
stop_all() {
  local pid
  for pid in "${pids[@]}"; do kill -s "${1:-TERM}" "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
}
cleanup() {
  stop_all
  ! declare -F stop_postgres >/dev/null || stop_postgres
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { printf '%s: %3d s  %s\n' "$me" "$SECONDS" "$*" >&2; }

# wait_for COMMAND...: until it succeeds, for 30 seconds at most.
wait_for() {
  local deadline=$((SECONDS + 30))
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || { say "this never succeeded: $*"; tail -n 5 "$work"/*.log >&2; exit 1; }
    sleep 0.1
  done
}

join() { local IFS=,; printf '%s' "$*"; }

# sum_of PREFIX ADDRESS: the sum of the series that begin so.
sum_of() { curl -sf "http://$2/metrics" | awk -v prefix="$1" 'index($0, prefix) == 1 { sum += $NF } END { printf "%.6f\n", sum }'; }

# each SERIES ADDRESS...: one count per node.
each() {
  local series=$1 address
  shift
  for address in "$@"; do sum_of "$series" "$address" | cut -d. -f1; done
}

hapax_ready() {
  local address
  for address in "${hapax_targets[@]}"; do curl -sf "http://$address/readyz" || return 1; done
}

start_hapax() {
  must_be_free "${hapax_targets[@]}" "${hapax_metrics[@]}"
  "$hapax" dev --data-dir "$work/hapax" --port "$port" >"$work/hapax.log" 2>&1 &
  pids+=($!)
  wait_for hapax_ready
}

created_hapax() { each 'hapax_claims_total{result="claimed"' "${hapax_metrics[@]}" | awk '{ sum += $1 } END { print sum }'; }

# must_equal WHAT ANSWERED COUNTED
must_equal() {
  [ "$2" = "$3" ] || { say "$1: $2 answers, but $3 keys"; exit 1; }
  say "$1: $2 keys created, as many as the system counts"
}

fact() { printf 'fact\t%s\t%s\n' "$1" "$2" >>"$work/results"; }
setting() { printf 'setting\t%s\t%s\t%s\n' "$1" "$2" "$3" >>"$work/results"; }

load_before=$(cut -d' ' -f1-3 /proc/loadavg)
# facts_at_the_beginning TARGET: of the Makefile.
facts_at_the_beginning() {
  local commit
  commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
  git diff --quiet HEAD -- crates Cargo.lock 2>/dev/null || commit="$commit and changes"
  fact when "$(date -u '+%Y-%m-%d %H:%M UTC')"
  fact machine "$(nproc) cores ($(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)), $(
    awk '/^MemTotal/ { printf "%d", $2 / 1024 }' /proc/meminfo) MiB memory, $(
    sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release), kernel $(uname -r | grep -oE '^[0-9.]+')"
  # Of the mount's options, those that say something about a sync.
  fact disk "$(findmnt -n -o FSTYPE -T "$work") ($(findmnt -n -o OPTIONS -T "$work" | tr , '\n' |
    grep -xE 'rw|sync|(rel|no|lazy)atime|discard|(no)?barrier(=.*)?|data=.*|commit=.*' | paste -s -d ,))"
  fact hapax "$("$hapax" --version | awk '{ print $2 }') (commit $commit, profile $(basename "$(dirname "$hapax")")), \`hapax dev\`: the default configuration"
  fact nice "$(nice)"
  fact command "$([ "$(nice)" = 0 ] || echo "nice -n $(nice) ")make $1$([ "$rounds" = 3 ] || echo " ROUNDS=$rounds")"
}
facts_at_the_end() {
  fact load "$load_before when it began"
  fact took "$SECONDS s"
}

# report SECTION: into the document, with the results beside it. A quick run proves the scripts and nothing else, so it is only shown.
report() {
  if [ -n "${QUICK:-}" ]; then
    "$compare" render "$1" "$work/results"
    return
  fi
  mkdir -p bench/results
  cp "$work/results" "bench/results/$1.tsv"
  "$compare" render "$1" "bench/results/$1.tsv" --into docs/benchmarks.md
  say "written: docs/benchmarks.md and bench/results/$1.tsv"
}
