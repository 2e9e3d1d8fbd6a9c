#!/usr/bin/env bash
# First process of the cluster's namespaces: its bridge, and the control plane on it. Everything ends with it.
# usage: inside/cluster.sh STATE
set -euo pipefail
. "$(dirname "$0")/../settings.sh"
. "$HERE/cgroups.sh"
. "$HERE/inside/parts.sh"

main() {
    settle "$CLUSTER"
    STATE="$1"
    TOOLS="$(cat "$STATE/tools")"
    export GOGC="$SPARE"
    mount --make-rprivate /
    mount_own_groups
    mount -t tmpfs -o mode=755 run /run
    hostname control-plane
    lay_wires
    start_etcd
    start_apiserver
    start_the_others
    live
}

lay_wires() {
    ip link set lo up
    # The sockets of a cluster that is killed must not keep its namespace for minutes.
    sysctl -qw net.ipv4.tcp_orphan_retries=1
    # With an address of its own: that of a port changes with the ports, and nobody is told.
    ip link add bridge0 address 02:00:00:00:00:02 type bridge
    ip address add "$CONTROL_IP/24" dev bridge0
    ip link set bridge0 up
    ip route add unreachable default
    local node
    for node in $(seq "$MOST_NODES"); do ip route add "$(node_pods "$node")" via "$(node_ip "$node")"; done
    until_true 10 "the machine has made its wire" test -e /sys/class/net/uplink
    ip link set uplink master bridge0 up
}

# Nobody needs the data after the cluster: no disk has to be waited for.
start_etcd() {
    mkdir -p "$STATE/etcd"
    mount -t tmpfs -o mode=700,size=1g etcd "$STATE/etcd"
    keep_running etcd "$TOOLS/etcd" --name=etcd --data-dir="$STATE/etcd/data" --log-level=warn \
        --listen-client-urls="http://127.0.0.1:2379,https://$CONTROL_IP:2379" --advertise-client-urls="https://$CONTROL_IP:2379" \
        --cert-file="$STATE/keys/etcd.crt" --key-file="$STATE/keys/etcd.key" \
        --client-cert-auth --trusted-ca-file="$STATE/keys/ca.crt" \
        --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
        --initial-cluster=etcd=http://127.0.0.1:2380
}

start_apiserver() {
    local keys="$STATE/keys"
    keep_running kube-apiserver "$TOOLS/kube-apiserver" --advertise-address="$CONTROL_IP" --secure-port=6443 \
        --etcd-servers=http://127.0.0.1:2379 --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
        --allow-privileged=true --profiling=false \
        --client-ca-file="$keys/ca.crt" --tls-cert-file="$keys/apiserver.crt" --tls-private-key-file="$keys/apiserver.key" \
        --kubelet-certificate-authority="$keys/ca.crt" --kubelet-client-certificate="$keys/apiserver-to-kubelet.crt" \
        --kubelet-client-key="$keys/apiserver-to-kubelet.key" --kubelet-preferred-address-types=InternalIP \
        --service-cluster-ip-range="$SERVICES_RANGE" --service-account-issuer=https://kubernetes.default.svc.cluster.local \
        --service-account-key-file="$keys/service-accounts.pub" --service-account-signing-key-file="$keys/service-accounts.key" \
        --requestheader-client-ca-file="$keys/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy \
        --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
        --requestheader-extra-headers-prefix=X-Remote-Extra- --enable-aggregator-routing=true \
        --proxy-client-cert-file="$keys/front-proxy.crt" --proxy-client-key-file="$keys/front-proxy.key" \
        --audit-policy-file="$HERE/inside/audit.yaml" --audit-log-path="$STATE/log/audit.log" --audit-log-mode=batch
}

# They would wait by themselves, but ever longer.
start_the_others() {
    until_true 120 "kube-apiserver is ready" curl --silent --fail --max-time 2 --cacert "$STATE/keys/ca.crt" https://127.0.0.1:6443/readyz
    local keys="$STATE/keys" who="$STATE/kubeconfig"
    # Quick enough that a node is not Ready before its first pod has an account; a node that is silent is missed after 20 s, and autoscalers
    # look every 5 s.
    keep_running kube-controller-manager "$TOOLS/kube-controller-manager" --kubeconfig="$who/manager" \
        --authentication-kubeconfig="$who/manager" --authorization-kubeconfig="$who/manager" --bind-address=127.0.0.1 \
        --leader-elect=false --profiling=false --client-ca-file="$keys/ca.crt" --root-ca-file="$keys/ca.crt" \
        --requestheader-client-ca-file="$keys/front-proxy-ca.crt" \
        --cluster-signing-cert-file="$keys/ca.crt" --cluster-signing-key-file="$keys/ca.key" \
        --service-account-private-key-file="$keys/service-accounts.key" --use-service-account-credentials=true \
        --service-cluster-ip-range="$SERVICES_RANGE" --allocate-node-cidrs=false --flex-volume-plugin-dir=/run/flexvolume \
        --kube-api-qps=300 --kube-api-burst=600 --node-monitor-period=2s --node-monitor-grace-period=20s \
        --horizontal-pod-autoscaler-sync-period=5s
    keep_running kube-scheduler "$TOOLS/kube-scheduler" --kubeconfig="$who/scheduler" --authentication-kubeconfig="$who/scheduler" \
        --authorization-kubeconfig="$who/scheduler" --bind-address=127.0.0.1 --leader-elect=false --profiling=false \
        --kube-api-qps=300 --kube-api-burst=600
    keep_running volumes "$TOOLS/volumes" "$who/addons" "$STATE"
    sed "s|KUBECONFIG|$who/addons|; s|CONTROL_IP|$CONTROL_IP|" "$HERE/inside/Corefile" >/run/Corefile
    keep_running coredns "$TOOLS/coredns" -conf /run/Corefile
}

# As long as somebody holds the lease (keep.sh), or else until it is killed (down.sh).
live() {
    if [ -n "${LEASE:-}" ]; then cat <&"$LEASE" >/dev/null & else sleep infinity & fi
    reap $!
}

main "$1"
