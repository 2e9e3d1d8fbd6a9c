#!/usr/bin/env bash
# Starts a cluster in namespaces of its own, waits until its nodes are Ready, and prints how to reach it.
# usage: [CLUSTER=0..15|any] up.sh [NODES]
set -Eeuo pipefail
. "$(dirname "$0")/settings.sh"
. "$HERE/cgroups.sh"

main() {
    [[ "$NODES" =~ ^[1-$MOST_NODES]$ ]] || fail "1 to $MOST_NODES nodes, not $NODES"
    local prepared
    prepared="$("$HERE/prepare.sh")"
    { read -r TOOLS && read -r IMAGES; } <<<"$prepared"
    choose "${CLUSTER:-0}"
    trap 'given_up "$LINENO"' ERR INT TERM
    guard
    raise_limits
    make_state
    "$HERE/keys.sh"
    start
    connect
    # They unpack their images while the control plane starts.
    for node in $(seq "$NODES"); do "$HERE/node.sh" up "$node"; done
    until_true 120 "the control plane is ready" is_ready
    kubectl apply -f - >/dev/null <<<"$(sed "s/DNS_SERVICE_IP/$DNS_SERVICE_IP/; s/CONTROL_IP/$CONTROL_IP/" "$HERE/addons.yaml")"
    wait_for_nodes
    tell
}

fail() {
    echo "up.sh: $1" >&2
    exit 1
}

kubectl() { "$TOOLS/kubectl" --kubeconfig="$STATE/kubeconfig/admin" "$@"; }

# choose NUMBER|any: the lock of that cluster, or of the first one from 1 on that nobody runs and of which nothing is left that
# cannot be removed. 0 is a person's.
choose() {
    local number
    if [ "$1" != any ]; then
        claim "$1" || fail "cluster $1 runs already; CLUSTER=$1 tests/cluster/down.sh ends it"
        "$HERE/down.sh" --claimed
        return
    fi
    for number in $(seq 1 $((CLUSTERS - 1))); do
        if claim "$number" && "$HERE/down.sh" --claimed; then return; fi
    done
    fail "all $((CLUSTERS - 1)) clusters of tests run"
}

# What is sent to a cluster that is down would follow the machine's default route to the outside. This stays.
guard() {
    ip route replace unreachable "$RANGE" metric 4000000000
}

# Every node takes 16 inotify instances and every control plane 13, of 128 that all of root's processes share by default. This
# stays, too.
raise_limits() {
    local limit=/proc/sys/fs/inotify/max_user_instances
    [ "$(cat "$limit")" -ge 1024 ] || echo 1024 >"$limit"
}

make_state() {
    (umask 077 && mkdir -p "$STATE")
    echo "$STATE" >"$LOCK"
    mkdir -p "$STATE/log" "$STATE/kubectl-cache"
    echo "$TOOLS" >"$STATE/tools"
    echo "$IMAGES" >"$STATE/images"
    groups_of self >"$STATE/groups"
    make_group "$GROUP"
    weigh_as_machine "$GROUP"
}

# The first process of the namespaces; the cluster ends with it. It alone inherits the lock, and the lease if there is one.
start() {
    (
        enter_group "$GROUP"
        exec setsid unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child=KILL --mount-proc "$HERE/inside/cluster.sh" "$STATE"
    ) </dev/null >>"$STATE/log/first.log" 2>&1 &
    UNSHARE=$!
    until_true 5 "the namespaces are there" has_child "$UNSHARE"
    child_of "$UNSHARE" >"$STATE/first.pid"
}

child_of() { tr -d ' ' <"/proc/$1/task/$1/children"; }
has_child() { runs "$(child_of "$1")" inside/cluster.sh "$STATE"; }

# The machine's end of the only wire. It disappears with the cluster, and its routes with it.
connect() {
    local node
    ip link add "$LINK" type veth peer name uplink netns "$(cat "$STATE/first.pid")"
    # Nodes are plugged into it.
    until_true 10 "the cluster has its bridge" nsenter --target "$(cat "$STATE/first.pid")" --net ip link show bridge0
    ip address add "$MACHINE_IP/24" dev "$LINK"
    ip link set "$LINK" up
    for node in $(seq "$MOST_NODES"); do ip route add "$(node_pods "$node")" via "$(node_ip "$node")"; done
    ip route add "$SERVICES_RANGE" via "$(node_ip 1)"
}

# Ends the wait at once when there is nothing left to wait for.
is_ready() {
    [ -n "$(first_process)" ] || fail "the cluster ended at once"
    curl --silent --fail --max-time 2 --cacert "$STATE/keys/ca.crt" "https://$CONTROL_IP:6443/readyz" &&
        curl --silent --fail --max-time 2 "http://$CONTROL_IP:8181/ready"
}

# Ready, and with the account that every pod needs.
wait_for_nodes() {
    local name names
    mapfile -t names < <(seq -f node/node-%g "$NODES")
    for name in "${names[@]}"; do kubectl wait --for=create --timeout="$((600 * ${KUN_STRETCH:-1}))s" "$name" >/dev/null; done
    kubectl wait --for=condition=Ready --timeout="$((600 * ${KUN_STRETCH:-1}))s" "${names[@]}" >/dev/null
    kubectl wait --for=create --timeout="$((600 * ${KUN_STRETCH:-1}))s" --namespace=default serviceaccount/default >/dev/null
}

given_up() {
    trap - ERR INT TERM
    echo "up.sh: given up in line $1. The ends of the logs:" >&2
    find "$STATE" -path '*/containerd' -prune -o -name '*.log' -not -name audit.log -print0 |
        sort -z | xargs -0 tail -n 5 | cut -c1-300 >&2 || true
    "$HERE/down.sh" --claimed || true
    exit 1
}

tell() {
    echo "export CLUSTER=$CLUSTER"
    echo "export KUBECONFIG=$STATE/kubeconfig/admin"
    # kubectl remembers by address what there is, and the next cluster has the same address.
    echo "export KUBECACHEDIR=$STATE/kubectl-cache"
}

NODES="${1:-1}"
main
