#!/usr/bin/env bash
# Runs every fuzz target of a folder for a number of seconds each: `run_fuzzers.sh FOLDER SECONDS`.
# What a target finds interesting is kept in build/fuzz/corpus/<target>; inputs checked in under tests/fuzz are its seeds.
set -euo pipefail
folder=$1
seconds=$2
source_root=$(cd "$(dirname "$0")/.." && pwd)

shopt -s nullglob
targets=("$folder"/*_fuzzer)
if [ "${#targets[@]}" -eq 0 ]; then
  echo "no fuzz targets in $folder" >&2
  exit 1
fi
for target in "${targets[@]}"; do
  name=$(basename "$target")
  corpus=$folder/../corpus/$name
  seeds=$source_root/tests/fuzz/corpus/${name%_fuzzer}
  mkdir -p "$corpus"
  arguments=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0)
  echo "== $name: $seconds s"
  if [ -d "$seeds" ]; then
    "$target" "${arguments[@]}" -artifact_prefix="$corpus/../" "$corpus" "$seeds"
  else
    "$target" "${arguments[@]}" -artifact_prefix="$corpus/../" "$corpus"
  fi
done
