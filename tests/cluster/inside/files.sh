# shellcheck shell=bash
# Sourced by the first process of a node: the configuration of its programs.

# Addresses are forgotten with the power, as the pods are that had them.
write_cni() {
    cat <<END
{"cniVersion": "0.4.0", "name": "bridge", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "/run/cni/addresses", "ranges": [[{"subnet": "$(node_pods "$NODE")"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
END
}

# restrict_oom_score_adj is for a root without CAP_SYS_RESOURCE, and does no harm to one that has it.
write_containerd() {
    cat <<END
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "kun.test/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/run/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
END
}

# A full disk of the machine taints no node, and images are never collected: none could be pulled again. The lease is short
# because kube-controller-manager's patience is. Secrets that changed are brought into pods within seconds, not within a minute and a half.
write_kubelet() {
    cat <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $STATE/keys/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $STATE/keys/kubelet-serving-$NODE.crt
tlsPrivateKeyFile: $STATE/keys/kubelet-serving-$NODE.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDNS: ["$DNS_SERVICE_IP"]
clusterDomain: cluster.local
resolvConf: /run/resolv.conf
syncFrequency: 10s
volumePluginDir: /var/lib/kubelet/plugins
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
nodeStatusUpdateFrequency: 4s
nodeStatusReportFrequency: 1m
nodeLeaseDurationSeconds: 12
serializeImagePulls: false
eventRecordQPS: 0
enableProfilingHandler: false
END
}

# Limits of conntrack are the machine's, and cannot be set from here. Rules are written as soon as something changes, or a
# Service of a pod that has just become ready would refuse for a second.
write_proxy() {
    cat <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $STATE/kubeconfig/proxy}
hostnameOverride: $NAME
clusterCIDR: $PODS_RANGE
detectLocalMode: ClusterCIDR
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {minSyncPeriod: 100ms, syncPeriod: 30s}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
END
}
