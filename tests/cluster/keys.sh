#!/usr/bin/env bash
# Makes the keys, certificates and kubeconfigs of a cluster, or with a number those of one node, in its state folder.
# usage: CLUSTER=0..15 keys.sh [NODE]
set -euo pipefail
umask 077
. "$(dirname "$0")/settings.sh"

main() {
    settle "$CLUSTER"
    read_state || true
    mkdir -p "$STATE/keys" "$STATE/kubeconfig"
    cd "$STATE/keys"
    if [ -n "${1:-}" ]; then of_node "$1"; else of_cluster; fi
}

of_cluster() {
    authority ca kun-test-ca
    authority front-proxy-ca kun-test-front-proxy-ca
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out service-accounts.key
    openssl pkey -in service-accounts.key -pubout -out service-accounts.pub
    local names="DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
    certificate apiserver ca /CN=kube-apiserver serverAuth "$names,IP:127.0.0.1,IP:$CONTROL_IP,IP:$API_SERVICE_IP"
    certificate apiserver-to-kubelet ca /O=system:masters/CN=kube-apiserver clientAuth
    certificate front-proxy front-proxy-ca /CN=front-proxy clientAuth
    certificate etcd ca /CN=etcd serverAuth,clientAuth "IP:127.0.0.1,IP:$CONTROL_IP"
    local user
    for user in admin:/O=system:masters/CN=admin manager:/CN=system:kube-controller-manager scheduler:/CN=system:kube-scheduler \
        proxy:/CN=system:kube-proxy addons:/O=system:masters/CN=addons; do
        certificate "${user%%:*}" ca "${user#*:}" clientAuth
        kubeconfig "${user%%:*}"
    done
}

of_node() {
    local who="/O=system:nodes/CN=system:node:node-$1"
    certificate "kubelet-$1" ca "$who" clientAuth
    certificate "kubelet-serving-$1" ca "$who" serverAuth "DNS:node-$1,IP:$(node_ip "$1")"
    kubeconfig "kubelet-$1"
}

# signed NAME SUBJECT ARGUMENT...: a key, and a certificate for longer than anybody runs a cluster.
signed() {
    local name="$1" subject="$2"
    shift 2
    openssl req -x509 -config <(printf '[req]\ndistinguished_name=name\n[name]\n') -subj "$subject" -days 365 \
        -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$name.key" -out "$name.crt" "$@" 2>told || {
        cat told >&2
        return 1
    }
}

authority() {
    signed "$1" "/CN=$2" -addext basicConstraints=critical,CA:true -addext keyUsage=critical,digitalSignature,keyCertSign,cRLSign
}

# certificate NAME AUTHORITY SUBJECT USAGE [NAMES]
certificate() {
    signed "$1" "$3" -CA "$2.crt" -CAkey "$2.key" -addext basicConstraints=critical,CA:false \
        -addext keyUsage=critical,digitalSignature -addext "extendedKeyUsage=$4" ${5:+-addext "subjectAltName=$5"}
}

# kubeconfig NAME: of whom the certificate of that name is.
kubeconfig() {
    cat >"$STATE/kubeconfig/$1" <<END
apiVersion: v1
kind: Config
current-context: kun-test-$CLUSTER
contexts: [{name: kun-test-$CLUSTER, context: {cluster: kun-test-$CLUSTER, user: $1}}]
clusters: [{name: kun-test-$CLUSTER, cluster: {server: "https://$CONTROL_IP:6443", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
END
}

main "$@"
