#!/usr/bin/env bash
# Prints the nvcc for the flavour cuda, looked for where cmake/NitinolCuda.cmake does; says why if there is none.
set -euo pipefail

nvcc=${CUDACXX:-}
for folder in "${CUDA_PATH:-}" "${CUDA_HOME:-}"; do
  [ -n "$nvcc" ] || [ -z "$folder" ] || nvcc=$(ls "$folder/bin/nvcc" 2>/dev/null || true)
done
[ -n "$nvcc" ] || nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [ -z "$nvcc" ]; then
  echo "There is no nvcc (CUDA toolkit) in CUDA_PATH, CUDA_HOME, PATH or /usr/local/cuda." >&2
  exit 1
fi
version=$("$nvcc" --version | sed -nE 's/.*release ([0-9]+)\..*/\1/p')
if [ "${version:-0}" -lt 13 ]; then
  echo "$nvcc is of CUDA ${version:-?}: 13.0 or later is needed." >&2
  exit 1
fi
echo "$nvcc"
