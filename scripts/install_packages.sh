#!/usr/bin/env bash
# Installs the distribution packages that a group of tasks needs: `install_packages.sh build|lint|fuzz`.
# Says what it will install before it does; does nothing, and touches no network, when all of it is there.
set -euo pipefail

case "${1:-}" in
  build)
    wanted=(
      g++ make cmake ninja-build ccache pkg-config python3 binutils
      libfmt-dev libsodium-dev nlohmann-json3-dev libhwy-dev libcli11-dev
      libgtest-dev libgmock-dev
      libopenmpi-dev openmpi-bin
    )
    ;;
  lint) wanted=(clang-format-14 clang-tidy-14) ;;
  fuzz) wanted=(clang-14 libclang-rt-14-dev llvm-14) ;;
  *)
    echo "usage: $0 build|lint|fuzz" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "This is no Debian or Ubuntu: please see to it that there is the like of: ${wanted[*]}" >&2
  exit 0
fi

installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/ installed$//p' || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Packages are missing and there is no sudo. As root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "These packages are missing and will be installed with apt-get: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -q "${missing[@]}"
