#!/usr/bin/env bash
# Installs what the targets of the Makefile need, or says exactly what is missing and how to get it.
# usage: tests/setup.sh [redis] [kubectl] [node] [cross-arm64] [cross-amd64]
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

# What a node of tests/cluster is made of, beside Kubernetes itself: command and package.
NODE="containerd=containerd ctr=containerd runc=runc iptables=iptables nft=nftables ip=iproute2 sysctl=procps
    unshare=util-linux nsenter=util-linux flock=util-linux openssl=openssl curl=curl strip=binutils
    /usr/lib/cni/bridge=containernetworking-plugins"

# The packages of redis-server and containerd start services where there is an init; a policy keeps them from doing so here.
POLICY=/usr/sbin/policy-rc.d
forbid_services() {
    [ ! -e "$POLICY" ] || return 0
    printf '#!/bin/sh\nexit 101\n' >"$POLICY"
    chmod 755 "$POLICY"
    trap 'rm -f "$POLICY"' EXIT
}

apt_install() {
    if ! have apt-get || [ "$(id -u)" != 0 ]; then
        echo "missing: $2. As root on Debian: apt-get install $1" >&2
        exit 1
    fi
    echo "installing $1" >&2
    forbid_services
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get -qq -o Acquire::Retries=3 update >/dev/null
    apt-get -qq -y --no-install-recommends install $1 >/dev/null
}

for need in "$@"; do
    case "$need" in
    redis)
        { have redis-server && have redis-cli; } || apt_install "redis-server redis-tools" "redis-server and redis-cli"
        ;;
    kubectl)
        have kubectl || apt_install kubernetes-client kubectl
        ;;
    node)
        lacking="" commands=""
        for pair in $NODE; do
            have "${pair%=*}" && continue
            commands="$commands${commands:+, }${pair%=*}"
            case " $lacking " in *" ${pair#*=} "*) ;; *) lacking="$lacking ${pair#*=}" ;; esac
        done
        [ -z "$lacking" ] || apt_install "${lacking# }" "$commands"
        ;;
    cross-arm64 | cross-amd64)
        machine=aarch64 package=aarch64
        if [ "$need" = cross-amd64 ]; then machine=x86_64 package=x86-64; fi
        have "$machine-linux-gnu-gcc" || apt_install "gcc-$package-linux-gnu g++-$package-linux-gnu" "a compiler for ${need#cross-}"
        rustup target list --installed | grep -qx "$machine-unknown-linux-gnu" || rustup --quiet target add "$machine-unknown-linux-gnu"
        ;;
    *)
        echo "setup.sh: unknown part '$need' (redis, kubectl, node, cross-arm64, cross-amd64)" >&2
        exit 2
        ;;
    esac
done
