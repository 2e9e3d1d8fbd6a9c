#!/usr/bin/env bash
# Does to a node what happens to machines: its power comes and goes (up, kill), it hangs (freeze, thaw), its cable is pulled
# (cut, join). up also adds a node.
# usage: [CLUSTER=0..15] node.sh up|kill|freeze|thaw|cut|join NUMBER
set -euo pipefail
. "$(dirname "$0")/settings.sh"
. "$HERE/cgroups.sh"

main() {
    [[ "$NODE" =~ ^[1-$MOST_NODES]$ ]] || usage
    found
    case "$ACTION" in
    up) switch_on ;;
    kill) switch_off ;;
    freeze) set_freezer "$GROUP/node-$NODE" FROZEN ;;
    thaw) set_freezer "$GROUP/node-$NODE" THAWED ;;
    cut) in_cluster ip link set "port$NODE" down ;;
    join) in_cluster ip link set "port$NODE" up ;;
    *) usage ;;
    esac
}

usage() {
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
}

in_cluster() { nsenter --target "$(first_process)" --net "$@"; }

switch_on() {
    if [ -n "$(node_process "$NODE")" ]; then
        echo "node $NODE is on" >&2
        exit 1
    fi
    # The kubelet spends seconds on each container of the time before that it finds here.
    until_true 10 "the groups of node $NODE are gone" remove_group "$GROUP/node-$NODE"
    mkdir -p "$STATE/node-$NODE"
    if [ ! -e "$STATE/kubeconfig/kubelet-$NODE" ]; then "$HERE/keys.sh" "$NODE"; fi
    make_group "$GROUP/node-$NODE"
    weigh_as_machine "$GROUP/node-$NODE"
    local entered="$STATE/node-$NODE/entered"
    rm -f "$entered"
    (
        enter_group "$GROUP/node-$NODE"
        exec 9>&- setsid nsenter --target "$(first_process)" --mount --net --pid --uts --ipc \
            unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child=KILL --mount-proc "$HERE/inside/node.sh" "$STATE" "$NODE"
    ) </dev/null >>"$STATE/log/node-$NODE.log" 2>&1 &
    local chain=$!
    until_true 10 "node $NODE has namespaces" has_first "$chain"
    first_of "$chain" >"$STATE/node-$NODE/first.pid"
    plug_in "$(node_process "$NODE")"
}

child_of() { tr -d ' ' <"/proc/$1/task/$1/children"; }
# nsenter, unshare, and then the first process of the node.
first_of() { child_of "$(child_of "$1")"; }
has_first() { runs "$(first_of "$1")" inside/node.sh "$STATE" "$NODE"; }

# The wire of a node, from a port of the cluster's bridge. Its address is the node's for ever, or the others would
# go on sending to the one before.
plug_in() {
    in_cluster ip link delete "port$NODE" 2>/dev/null || true
    in_cluster ip link add "port$NODE" type veth peer name "plug$NODE" address "02:00:00:00:01:0$NODE"
    in_cluster ip link set "port$NODE" master bridge0 up
    in_cluster ip link set "plug$NODE" netns "/proc/$1/ns/net"
}

switch_off() {
    local pid
    pid="$(node_process "$NODE")"
    [ -n "$pid" ] || return 0
    set_freezer "$GROUP/node-$NODE" THAWED
    kill -KILL "$pid"
    until_true 30 "node $NODE is off" test ! -d "/proc/$pid"
}

ACTION="${1:-}" NODE="${2:-}"
main
