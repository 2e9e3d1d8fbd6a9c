#!/usr/bin/env bash
# Installs what the targets of the Makefile need, or says exactly what is missing and how to get it.
# usage: tests/setup.sh [redis] [kubectl] [cargo-deny]
set -euo pipefail

CARGO_DENY_VERSION=0.20.2

have() { command -v "$1" >/dev/null 2>&1; }

# Debian's redis-server package starts a service where there is one; policy-rc.d keeps it from doing so here.
apt_install() {
    if ! have apt-get || [ "$(id -u)" != 0 ]; then
        echo "missing: $2. As root on Debian: apt-get install $1" >&2
        exit 1
    fi
    echo "installing $1" >&2
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
    cargo-deny)
        if ! cargo deny --version 2>/dev/null | grep -qF "$CARGO_DENY_VERSION"; then
            echo "installing cargo-deny $CARGO_DENY_VERSION" >&2
            cargo install --quiet --locked --debug --version "$CARGO_DENY_VERSION" cargo-deny
        fi
        ;;
    *)
        echo "setup.sh: unknown part '$need' (redis, kubectl, cargo-deny)" >&2
        exit 2
        ;;
    esac
done
