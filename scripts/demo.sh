#!/usr/bin/env bash
# Builds the benchmark tool and runs all collectives with 8 ranks, results checked: on GPUs where there are any and nvcc is
# installed, else on virtual GPUs. Further arguments go to nitinol-perf.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=vgpu
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  if [ -n "$nvcc" ]; then
    preset=cuda
  else
    echo "There are NVIDIA GPUs but no nvcc (CUDA toolkit) to build for them: running on virtual GPUs."
  fi
fi

# The code for compute capability 9.0 and its PTX serve those and later GPUs, which is what a build has unless it is told.
flags=
if [ "$preset" = cuda ]; then
  capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -nu)
  if [ "$(head -n 1 <<<"$capabilities")" -lt 90 ]; then
    flags="'-DNITINOL_CUDA_ARCHITECTURES=$(paste -sd ';' <<<"$capabilities")'"
  fi
fi

make -s --no-print-directory "build/$preset/build.ninja" CMAKE_FLAGS="$flags"
cmake --build --preset "$preset" -j "$(nproc)" --target nitinol-perf
if [ "$preset" = vgpu ]; then
  echo "8 ranks on 8 virtual GPUs (threads and host memory), $(nproc) CPU cores:"
else
  echo "8 ranks on $(nvidia-smi -L | wc -l) GPUs:"
fi
exec "build/$preset/bin/nitinol-perf" all -g 8 -b 1K -e 1M -f 32 "$@"
