#!/usr/bin/env bash
# Does to one program of the cluster what happens to programs. Killed, it is started again at once; held, it is not until it
# is released; paused, it neither works nor ends until it continues.
# usage: [CLUSTER=0..15] part.sh kill|hold|release|pause|continue PART
# parts: etcd kube-apiserver kube-controller-manager kube-scheduler coredns volumes; node-1/kubelet node-1/containerd node-1/kube-proxy
set -euo pipefail
. "$(dirname "$0")/settings.sh"

main() {
    found
    [ -e "$STATE/parts/$PART.log" ] || usage
    case "$ACTION" in
    kill) signal KILL ;;
    hold)
        touch "$STATE/parts/$PART.held"
        signal KILL
        ;;
    release) rm -f "$STATE/parts/$PART.held" ;;
    pause) signal STOP ;;
    continue) signal CONT ;;
    *) usage ;;
    esac
}

usage() {
    sed -n 's/^# \(usage\|parts\): /\1: /p' "$0" >&2
    exit 2
}

# Its number counts where it runs: in the namespaces of the node, or of the control plane. Between two lives it has none.
signal() {
    local around
    case "$PART" in
    node-*) around="$(node_process "${PART:5:1}")" ;;
    *) around="$(first_process)" ;;
    esac
    [ -n "$around" ] || usage
    until_true 5 "$PART runs" test -s "$STATE/parts/$PART.pid"
    nsenter --target "$around" --pid --mount kill "-$1" "$(cat "$STATE/parts/$PART.pid")"
}

ACTION="${1:-}" PART="${2:-}"
main
