#!/usr/bin/env bash
# Compares Nitinol on virtual GPUs with the installed MPI for 2, 4, 8 and 16 processes (or those in PROCESSES). MPI is told
# to yield where there are more processes than cores.
# Usage: bench/run_mpi_compare.sh [BUILD_FOLDER [RESULT_FOLDER]]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$here/build/vgpu}
results=${2:-$here/bench/results}
program=$build/bin/bench/mpi_compare
cores=$(nproc)
[ -x "$program" ] || { echo "$program is not built; run: cmake --build $build --target mpi_compare" >&2; exit 1; }
mkdir -p "$results"
for processes in ${PROCESSES:-2 4 8 16}; do
  yield=0
  [ "$processes" -le "$cores" ] || yield=1
  OMPI_MCA_mpi_yield_when_idle=$yield mpirun --allow-run-as-root --oversubscribe -n "$processes" \
    "$program" "${LEAST:-8}" "${MOST:-16777216}" "${FACTOR:-2}" "$results/mpi_compare_$processes.json" |
    tee "$results/mpi_compare_$processes.txt"
done
