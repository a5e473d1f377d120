#!/usr/bin/env bash
# Runs ctest for a preset: `run_tests.sh PRESET [ctest arguments]`. A summary for machines goes to build/PRESET/tests.xml.
set -euo pipefail
preset=$1
shift
cd "$(dirname "$0")/.."

# ThreadSanitizer of older compilers cannot place its shadow memory under strong address randomisation.
fixed_addresses=()
if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then
  fixed_addresses=(setarch -R)
fi
exec "${fixed_addresses[@]}" ctest --preset "$preset" --output-junit tests.xml "$@"
