#!/usr/bin/env bash
# Gives images to every node that is on. Nodes know them until the cluster ends; one that is added later does not.
# usage: [CLUSTER=0..15] load.sh IMAGE.tar...
set -euo pipefail
. "$(dirname "$0")/settings.sh"

found
for node in $(seq "$MOST_NODES"); do
    pid="$(node_process "$node")"
    [ -n "$pid" ] || continue
    for image in "$@"; do
        # nsenter changes the folder we are in.
        nsenter --target "$pid" --mount --net --pid --cgroup \
            ctr --address /run/containerd/containerd.sock --namespace k8s.io images import --no-unpack "$(realpath "$image")" >/dev/null
    done
done
