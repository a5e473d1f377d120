#!/usr/bin/env bash
# Runs every fuzz target of a build tree for a number of seconds each: `run_fuzzers.sh BUILD_TREE SECONDS`. Inputs checked in
# under tests/fuzz/corpus are the seeds; what a target finds interesting, or fails on, is kept in BUILD_TREE/corpus/<subject>.
set -euo pipefail
build=$1
seconds=$2
seeds=$(cd "$(dirname "$0")/.." && pwd)/tests/fuzz/corpus

shopt -s nullglob
targets=("$build"/bin/fuzz_*)
if [ "${#targets[@]}" -eq 0 ]; then
  echo "no fuzz targets in $build/bin" >&2
  exit 1
fi
for target in "${targets[@]}"; do
  subject=$(basename "$target")
  subject=${subject#fuzz_}
  mkdir -p "$build/corpus/$subject"
  echo "== $subject: $seconds s"
  "$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$build/corpus/$subject-" "$build/corpus/$subject" "$seeds/$subject"
done
