#!/usr/bin/env bash
# Builds and runs a user's program against Nitinol: `package_test.sh CASE BUILD_TREE FLAVOUR C_COMPILER [CUDA_ROOT]`.
# Cases: in_place_pkg_config, in_place_cmake, installed (both, from an installation that was moved).
set -euo pipefail
what=$1
build=$2
flavour=$3
export CC=$4
cuda_root=${5:-}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH LD_PRELOAD PKG_CONFIG_PATH CFLAGS LDFLAGS

# Expects "version 22809, ...": on virtual GPUs the program must have run a collective.
expect_run() {
  local output
  output=$("$@")
  echo "$*: $output"
  if [ "$flavour" = vgpu ]; then
    grep -qx 'version 22809, 8 GPUs, result 0' <<<"$output"
  else
    grep -q '^version 22809, ' <<<"$output"
  fi
}

with_pkg_config() {
  local prefix=$1 flags
  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
  [ "$(pkg-config --modversion nccl)" = 2.28.9 ]
  flags=$(pkg-config --cflags --libs nccl)
  if [ "$flavour" = cuda ]; then
    flags+=" -I$cuda_root/include -L$cuda_root/lib64 -lcudart -Wl,-rpath,$cuda_root/lib64"
  fi
  # shellcheck disable=SC2086  # the flags are words
  $CC -std=c99 -Wall -Werror "$here/consumer.c" -o "$work/consumer_pkg_config" $flags
  expect_run env ${2:+LD_LIBRARY_PATH="$2"} "$work/consumer_pkg_config"
}

with_cmake() {
  local prefix=$1
  cmake -S "$here/consumer_project" -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    ${cuda_root:+-DCUDAToolkit_ROOT="$cuda_root"} >"$work/log" || { cat "$work/log"; return 1; }
  cmake --build "$work/cmake" >"$work/log" || { cat "$work/log"; return 1; }
  expect_run "$work/cmake/consumer"
  rm -r "$work/cmake"
}

case $what in
  in_place_pkg_config) with_pkg_config "$build" ;;
  in_place_cmake) with_cmake "$build" ;;
  installed)
    cmake --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
    mv "$work/first" "$work/moved"
    for file in lib/libnccl.so.2 lib/libnccl.so include/nccl.h include/nitinol.h bin/nitinol-perf bin/nitinol-ras \
      bin/nitinol-trace; do
      [ -e "$work/moved/$file" ] || { echo "$file is not installed"; exit 1; }
    done
    with_pkg_config "$work/moved" "$work/moved/lib"
    with_cmake "$work/moved"
    "$work/moved/bin/nitinol-perf" --help >/dev/null
    "$work/moved/bin/nitinol-trace" --help >/dev/null
    "$work/moved/bin/nitinol-ras" --help >/dev/null
    ;;
  *)
    echo "no case '$what'" >&2
    exit 2
    ;;
esac
