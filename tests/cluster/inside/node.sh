#!/usr/bin/env bash
# First process of a node's namespaces: containerd, kubelet and kube-proxy. Its end is the node's power failure.
# usage: inside/node.sh STATE NUMBER
set -euo pipefail
. "$(dirname "$0")/../settings.sh"
. "$HERE/cgroups.sh"
. "$HERE/inside/parts.sh"
. "$HERE/inside/files.sh"

main() {
    settle "$CLUSTER"
    STATE="$1" NODE="$2"
    TOOLS="$(cat "$STATE/tools")"
    IMAGES="$(cat "$STATE/images")"
    NAME="node-$NODE"
    export GOGC="$SPARE"
    mount --make-rshared /
    mount_own_groups
    mount_own_folders
    mount_own_settings
    hostname "$NAME"
    lay_wires
    mkdir -p /run/cni /run/kube
    write_cni >/run/cni/10-bridge.conflist
    write_containerd >/run/kube/containerd.toml
    write_kubelet >/run/kube/kubelet.yaml
    write_proxy >/run/kube/proxy.yaml
    start_containerd
    keep_running "$NAME/kubelet" "$TOOLS/kubelet" --config=/run/kube/kubelet.yaml --kubeconfig="$STATE/kubeconfig/kubelet-$NODE" \
        --hostname-override="$NAME" --node-ip="$(node_ip "$NODE")" --node-labels="topology.kubernetes.io/zone=zone-$NODE" \
        --root-dir=/var/lib/kubelet --cert-dir=/var/lib/kubelet/pki
    keep_running "$NAME/kube-proxy" "$TOOLS/kube-proxy" --config=/run/kube/proxy.yaml
    sleep infinity &
    reap $!
}

# What is to survive a power failure lies in the state folder; /run does not.
mount_own_folders() {
    local folder
    mount -t tmpfs -o mode=755 run /run
    mount -t tmpfs -o mode=755 varlib /var/lib
    mkdir -p /var/lib/cni
    for folder in kubelet containerd volumes; do
        mkdir -p "$STATE/$NAME/$folder" "/var/lib/$folder"
        mount --bind "$STATE/$NAME/$folder" "/var/lib/$folder"
    done
    # Layers of images cannot lie on top of layers.
    if [ "$(stat --file-system --format=%T "$STATE")" = overlayfs ]; then mount -t tmpfs -o mode=711 containerd /var/lib/containerd; fi
    mkdir -p "$STATE/$NAME/log"
    mount --bind "$STATE/$NAME/log" /var/log
}

# The kubelet sets these for the whole machine: it gets copies. Each node is a machine of its own, and each start a boot.
mount_own_settings() {
    local setting
    for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
        kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
        mkdir -p "/run/sysctl/$(dirname "${setting%=*}")"
        echo "${setting#*=}" >"/run/sysctl/${setting%=*}"
        mount --bind "/run/sysctl/${setting%=*}" "/proc/sys/${setting%=*}"
    done
    if [ ! -e "$STATE/$NAME/machine-id" ]; then tr -d - </proc/sys/kernel/random/uuid >"$STATE/$NAME/machine-id"; fi
    cat /proc/sys/kernel/random/uuid >/run/boot-id
    mount --bind /run/boot-id /proc/sys/kernel/random/boot_id
    if [ -e /etc/machine-id ]; then mount --bind "$STATE/$NAME/machine-id" /etc/machine-id; fi
    # Nothing of the machine's resolver gets into pods.
    : >/run/resolv.conf
}

lay_wires() {
    local node
    ip link set lo up
    until_true 10 "node $NODE has a wire" test -e "/sys/class/net/plug$NODE"
    ip link set "plug$NODE" name eth0
    ip address add "$(node_ip "$NODE")/24" dev eth0
    ip link set eth0 up
    sysctl -qw net.ipv4.tcp_orphan_retries=1 net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
    # Without a route nobody may connect; kube-proxy rewrites the address before it is followed.
    ip route add "$SERVICES_RANGE" via "$CONTROL_IP"
    for node in $(seq "$MOST_NODES"); do
        if [ "$node" != "$NODE" ]; then ip route add "$(node_pods "$node")" via "$(node_ip "$node")"; fi
    done
    ip route add unreachable default
}

# With every image that there is, so that nothing has to be pulled.
start_containerd() {
    local image containers=(ctr --address /run/containerd/containerd.sock --namespace k8s.io)
    keep_running "$NAME/containerd" containerd --config /run/kube/containerd.toml
    until_true 20 "containerd of node $NODE answers" "${containers[@]}" version
    for image in "$IMAGES"/*.tar; do "${containers[@]}" images import --no-unpack "$image" >/dev/null; done
}

main "$@"
