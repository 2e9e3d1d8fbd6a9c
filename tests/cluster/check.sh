#!/usr/bin/env bash
# Says in one sentence what this machine lacks for a cluster with nodes, if it lacks something that cannot be installed.
set -euo pipefail

missing() {
    echo "missing: $1" >&2
    exit 1
}

# has NUMBER: whether this process has a capability.
has() { ((0x$(sed -n 's/^CapEff:\s*//p' /proc/self/status) >> $1 & 1)); }

[ "$(id -u)" = 0 ] || missing "root; a cluster with nodes makes namespaces, control groups and network links"
has 21 || missing "the capability CAP_SYS_ADMIN, to make namespaces and mounts"
has 12 || missing "the capability CAP_NET_ADMIN, to make network links"
for group in cpu cpuset memory devices freezer pids; do
    [ -d "/sys/fs/cgroup/$group" ] ||
        missing "control groups of version 1 ($group); a cluster with nodes does not know how to use version 2 yet"
done
