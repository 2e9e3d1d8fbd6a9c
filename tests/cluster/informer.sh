#!/usr/bin/env bash
# Builds the informer program once, and prints its path. Named after what goes into it, as build.sh does it.
set -euo pipefail
cd "$(dirname "$0")"
. ./go.sh

cache="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}"
hash="$(cat go.mod go.sum informer.sh go.sh informer/*.go | sha256sum | cut -c1-16)"
out="$cache/informer-$hash"

if [ ! -x "$out" ]; then
    if ! command -v go >/dev/null 2>&1; then
        echo "missing: go, $(grep '^go ' go.mod | cut -d' ' -f2) or newer. See https://go.dev/doc/install" >&2
        exit 1
    fi
    echo "building the informer program (a minute, once) into $out" >&2
    mkdir -p "$cache"
    partial="$(mktemp "$cache/partial.XXXXXX")"
    trap 'rm -f "$partial"' EXIT
    build_go -o "$partial" ./informer
    chmod 755 "$partial"
    mv "$partial" "$out"
fi
echo "$out"
