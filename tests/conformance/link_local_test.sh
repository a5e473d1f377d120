#!/usr/bin/env bash
# `link_local_test.sh PROGRAM FILTER`: tests where hosts meet by link-local IPv6 addresses, which mean something only together
# with an interface, in a network of its own that has no others. Skipped (77) where nobody may make one.
set -euo pipefail
if [ "${1:-}" != --inside ]; then
  unshare --net true 2>/dev/null || { echo "skipped: no network namespace may be made here"; exit 77; }
  exec unshare --net "$0" --inside "$@"
fi
program=$2
filter=$3
skip() {
  echo "skipped: $1"
  exit 77
}
command -v ip >/dev/null || skip "there is no ip (iproute2)"
ip link add here type veth peer name there 2>/dev/null || skip "no interface may be made here"
ip link set lo up  # what goes to an own address goes by it
for name in here there; do
  echo 0 >"/proc/sys/net/ipv6/conf/$name/accept_dad" 2>/dev/null || true  # else the address is tried for a second
  ip link set "$name" up
done
for _ in $(seq 50); do
  ip -6 addr show dev here scope link -tentative | grep -q fe80 && break
  sleep 0.1
done
ip -6 addr show dev here scope link -tentative | grep -q fe80 || skip "the interface has no link-local address"
NCCL_SOCKET_IFNAME==here NCCL_SOCKET_FAMILY=AF_INET6 "$program" --gtest_filter="$filter"
