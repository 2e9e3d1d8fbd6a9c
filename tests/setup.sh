#!/usr/bin/env bash
# Installs what the targets of the Makefile need, or says exactly what is missing and how to get it.
# usage: tests/setup.sh [redis] [kubectl] [node] [cross-arm64] [cross-amd64]
set -euo pipefail
. "$(dirname "$0")/locks.sh"

have() { command -v "$1" >/dev/null 2>&1; }

# What a node of tests/cluster is made of, beside Kubernetes itself: command and package.
NODE="containerd=containerd ctr=containerd runc=runc iptables=iptables nft=nftables ip=iproute2 sysctl=procps
    unshare=util-linux nsenter=util-linux flock=util-linux openssl=openssl curl=curl strip=binutils
    /usr/lib/cni/bridge=containernetworking-plugins"

# unfinished PACKAGE: an installation that was killed has left it unpacked, but not configured, perhaps without its libraries. The first
# letter says what is wanted (to install, hold or remove it), the second one what there is.
unfinished() {
    case "$(dpkg-query --show --showformat='${db:Status-Abbrev}' "$1" 2>/dev/null || true)" in
    "" | ?i* | ?c* | ?n*) return 1 ;;
    esac
}

# The packages of redis-server and containerd start services where there is an init; a policy keeps them from doing so here. One
# of ours that lies there is of a run that was killed.
POLICY=/usr/sbin/policy-rc.d
POLICY_TEXT='#!/bin/sh
# By tests/setup.sh of kun, while it installs.
exit 101'
forbid_services() {
    [ ! -e "$POLICY" ] || [ "$(cat "$POLICY")" = "$POLICY_TEXT" ] || return 0
    echo "$POLICY_TEXT" >"$POLICY"
    chmod 755 "$POLICY"
    trap 'rm -f "$POLICY"' EXIT
}

# One at a time, of all checkouts. Half an hour: what is installed is some tens of megabytes, and each of its downloads may be tried anew.
take_turn() {
    have flock || return 0
    make_lock /run/lock/kun-setup
    exec 8>/run/lock/kun-setup
    flock --timeout 1800 8 || {
        echo "setup.sh: somebody who installs packages has held /run/lock/kun-setup for half an hour" >&2
        exit 1
    }
}

# Somebody else who installs is waited for.
quiet_apt() { apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" </dev/null >/dev/null; }

# What was killed while it installed must be finished before anything else can be installed.
finish_interrupted() {
    dpkg --configure --pending </dev/null >/dev/null 2>&1 || true
    quiet_apt check 2>/dev/null || quiet_apt -y --fix-broken install
}

# apt_install PACKAGES COMMANDS
apt_install() {
    if ! have apt-get || [ "$(id -u)" != 0 ]; then
        echo "missing: $2. As root on Debian: apt-get install $1" >&2
        exit 1
    fi
    echo "installing $1" >&2
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    local packages
    read -ra packages <<<"$1"
    take_turn
    forbid_services
    quiet_apt update
    finish_interrupted
    quiet_apt -y --no-install-recommends install "${packages[@]}"
}

for need in "$@"; do
    case "$need" in
    redis)
        if ! have redis-server || ! have redis-cli || unfinished redis-server || unfinished redis-tools; then
            apt_install "redis-server redis-tools" "redis-server and redis-cli"
        fi
        ;;
    kubectl)
        if ! have kubectl || unfinished kubernetes-client; then apt_install kubernetes-client kubectl; fi
        ;;
    node)
        lacking="" commands=""
        for pair in $NODE; do
            if have "${pair%=*}" && ! unfinished "${pair#*=}"; then continue; fi
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
