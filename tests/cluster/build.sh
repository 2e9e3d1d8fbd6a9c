#!/usr/bin/env bash
# Builds Kubernetes, etcd, CoreDNS, Helm, cert-manager and our informer program once, and prints the folder that holds them.
# The folder is named after what goes into it, so another version never meets the files of this one.
set -euo pipefail
cd "$(dirname "$0")"
. ./go.sh
. ../partial.sh

hash="$(cat go.mod go.sum build.sh go.sh {kube,coredns,cert-manager,informer}/*.go | sha256sum | cut -c1-16)"
linked "cluster-$hash" && exit
cache="$(cache_for "cluster-$hash")"
out="$cache/cluster-$hash"

if ! is_whole "$out"; then take_turn "$cache/build.lock"; fi
if ! is_whole "$out"; then
    if ! command -v go >/dev/null 2>&1; then
        echo "missing: go, $(grep '^go ' go.mod | cut -d' ' -f2) or newer. See https://go.dev/doc/install" >&2
        exit 1
    fi
    echo "building Kubernetes and what stands beside it (minutes, once) into $out" >&2
    kubernetes="$(go list -mod=mod -m -f '{{.Version}}' k8s.io/kubernetes)"
    helm="$(go list -mod=mod -m -f '{{.Version}}' helm.sh/helm/v3)"
    major_minor="${kubernetes#v}"
    flags="-s -w -X helm.sh/helm/v3/internal/version.version=$helm"
    # What they tell about themselves, and what they tell servers.
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags="$flags -X $package.gitVersion=$kubernetes -X $package.gitMajor=${major_minor%%.*}"
        flags="$flags -X $package.gitMinor=$(cut -d. -f2 <<<"$major_minor") -X $package.gitCommit=tests"
        flags="$flags -X $package.gitTreeState=clean -X $package.buildDate=2026-01-01T00:00:00Z"
    done

    begin_partial "$cache"
    # Go's own folders, of a gigabyte, go with it.
    mkdir "$partial/tmp"
    export GOTMPDIR="$partial/tmp"
    build_go -ldflags "$flags" -o "$partial/" ./kube k8s.io/kubernetes/cmd/kube-apiserver \
        ./coredns helm.sh/helm/v3/cmd/helm ./cert-manager ./informer
    build_go -ldflags "$flags" -o "$partial/etcd" go.etcd.io/etcd/server/v3
    cert_manager="$(go list -mod=mod -m -f '{{.Dir}}' github.com/cert-manager/cert-manager)"
    cat "$cert_manager"/deploy/crds/cert-manager.io_{certificates,certificaterequests,issuers,clusterissuers}.yaml \
        >"$partial/cert-manager.yaml"
    for name in kube-controller-manager kube-scheduler kubelet kube-proxy kubectl volumes; do ln -s kube "$partial/$name"; done
    rm -rf "$partial/tmp"
    finish_partial "$out"
fi
link_here "$out"
