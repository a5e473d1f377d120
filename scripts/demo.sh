#!/usr/bin/env bash
# Builds the benchmark tool and runs all collectives with 8 ranks, results checked: on GPUs where there are any and CUDA 13
# is installed, else on virtual GPUs. Further arguments go to nitinol-perf.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=vgpu
capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -nu || true)
least=$(head -n 1 <<<"$capabilities")
if [[ $least =~ ^[0-9]+$ ]]; then
  if [ "$least" -lt 75 ]; then
    echo "There are NVIDIA GPUs of compute capability below 7.5: running on virtual GPUs."
  elif scripts/find_nvcc.sh >/dev/null; then
    preset=cuda
  else
    echo "So nothing can be built for the NVIDIA GPUs that there are: running on virtual GPUs."
  fi
fi

make -s --no-print-directory "build/$preset/build.ninja" CMAKE_FLAGS="${CMAKE_FLAGS:-}"
# The code for compute capability 9.0 and its PTX serve those and later GPUs.
if [ "$preset" = cuda ]; then
  wanted=90
  [ "$least" -ge 90 ] || wanted=$capabilities
  for capability in $wanted; do
    grep -qE "^NITINOL_CUDA_ARCHITECTURES:STRING=(.*;)?$capability([^0-9]|$)" build/cuda/CMakeCache.txt && continue
    cmake --preset cuda "-DNITINOL_CUDA_ARCHITECTURES=$(paste -sd ';' <<<"$wanted")"
    break
  done
fi
cmake --build --preset "$preset" -j "${JOBS:-$(nproc)}" --target nitinol-perf
if [ "$preset" = vgpu ]; then
  echo "8 ranks on 8 virtual GPUs (threads and host memory), $(nproc) CPU cores:"
else
  echo "8 ranks on $(nvidia-smi -L | wc -l) GPUs:"
fi
exec "build/$preset/bin/nitinol-perf" all -g 8 -b 1K -e 1M -f 32 "$@"
