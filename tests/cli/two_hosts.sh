#!/usr/bin/env bash
# Creates two hosts on one machine: network namespaces that a veth link connects, with separate host
# names. Requires root (or NET_ADMIN and SYS_ADMIN).
#   two_hosts.sh up NAME     creates the hosts; exits with 77 and a reason if that is not permitted
#   two_hosts.sh on NAME 1|2 COMMAND...
#                            runs the command on host1 (10.213.0.1) or host2 (10.213.0.2)
#   two_hosts.sh down NAME   kills the processes of the hosts and removes them
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

refuse() {
  echo "two hosts cannot be made here: $*" >&2
  exit 77
}

up() {
  local name=$1 host
  command -v ip >/dev/null || refuse "iproute2 is not installed"
  ip netns add "$name-1" 2>/dev/null || refuse "no right to make network namespaces (run as root)"
  ip netns add "$name-2"
  ip link add "$name-a" netns "$name-1" type veth peer name "$name-b" netns "$name-2" \
    2>/dev/null || { down "$name"; refuse "no right to make a veth link"; }
  unshare --uts true 2>/dev/null || { down "$name"; refuse "no right to set a host name"; }
  for host in 1 2; do
    mkdir -p "/etc/netns/$name-$host"
    printf '127.0.0.1 localhost\n10.213.0.1 host1\n10.213.0.2 host2\n' \
      >"/etc/netns/$name-$host/hosts"
    ip -n "$name-$host" link set lo up
  done
  ip -n "$name-1" addr add 10.213.0.1/24 dev "$name-a"
  ip -n "$name-2" addr add 10.213.0.2/24 dev "$name-b"
  ip -n "$name-1" link set "$name-a" up
  ip -n "$name-2" link set "$name-b" up
}

on() {
  local name=$1 host=$2
  shift 2
  exec ip netns exec "$name-$host" unshare --uts sh -c 'hostname "$0" && exec "$@"' "host$host" "$@"
}

down() {
  local name=$1 host
  for host in 1 2; do
    ip netns pids "$name-$host" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns del "$name-$host" 2>/dev/null || true
    rm -rf "/etc/netns/$name-$host"
  done
}

"$@"
