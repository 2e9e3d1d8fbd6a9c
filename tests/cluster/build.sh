#!/usr/bin/env bash
# Builds Kubernetes, etcd and CoreDNS once, and prints the folder that holds their programs.
# The folder is named after what goes into it, so another version never meets the files of this one.
set -euo pipefail
cd "$(dirname "$0")"
. ./go.sh

cache="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}"
hash="$(cat go.sum build.sh go.sh kube/*.go coredns/go.sum coredns/*.go | sha256sum | cut -c1-16)"
out="$cache/cluster-$hash"

if [ ! -d "$out" ]; then
    if ! command -v go >/dev/null 2>&1; then
        echo "missing: go, $(grep '^go ' go.mod | cut -d' ' -f2) or newer. See https://go.dev/doc/install" >&2
        exit 1
    fi
    echo "building Kubernetes, etcd and CoreDNS (minutes, once) into $out" >&2
    kubernetes="$(go list -mod=mod -m -f '{{.Version}}' k8s.io/kubernetes)"
    major_minor="${kubernetes#v}"
    flags="-s -w"
    # What they tell about themselves, and what they tell servers.
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags="$flags -X $package.gitVersion=$kubernetes -X $package.gitMajor=${major_minor%%.*}"
        flags="$flags -X $package.gitMinor=$(cut -d. -f2 <<<"$major_minor") -X $package.gitCommit=tests"
        flags="$flags -X $package.gitTreeState=clean -X $package.buildDate=2026-01-01T00:00:00Z"
    done

    mkdir -p "$cache"
    partial="$(mktemp -d "$cache/partial.XXXXXX")"
    trap 'rm -rf "$partial"' EXIT
    build_go -ldflags "$flags" -o "$partial/" ./kube k8s.io/kubernetes/cmd/kube-apiserver
    build_go -ldflags "$flags" -o "$partial/etcd" go.etcd.io/etcd/server/v3
    (cd coredns && build_go -ldflags "-s -w" -o "$partial/coredns" .)
    for name in kube-controller-manager kube-scheduler kubelet kube-proxy kubectl volumes; do ln -s kube "$partial/$name"; done
    chmod 755 "$partial"
    # Two builds at once end with the files of one of them.
    mv -T "$partial" "$out" 2>/dev/null || [ -d "$out" ]
fi
echo "$out"
