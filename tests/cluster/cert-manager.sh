#!/usr/bin/env bash
# Builds cert-manager's controllers once, and prints the folder with their program and their kinds. Named after what goes into it,
# as build.sh does it.
set -euo pipefail
cd "$(dirname "$0")/cert-manager"
. ../go.sh

cache="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}"
hash="$(cat go.mod go.sum ./*.go ../cert-manager.sh ../go.sh | sha256sum | cut -c1-16)"
out="$cache/cert-manager-$hash"

if [ ! -d "$out" ]; then
    if ! command -v go >/dev/null 2>&1; then
        echo "missing: go, $(grep '^go ' go.mod | cut -d' ' -f2) or newer. See https://go.dev/doc/install" >&2
        exit 1
    fi
    mkdir -p "$cache"
    # As tools.sh: one build at a time.
    exec 9>"$cache/build.lock"
    flock 9
fi
if [ ! -d "$out" ]; then
    echo "building cert-manager (minutes, once) into $out" >&2
    partial="$(mktemp -d "$cache/partial.XXXXXX")"
    trap 'rm -rf "$partial"' EXIT
    build_go -ldflags "-s -w" -o "$partial/cert-manager" .
    source="$(go list -mod=mod -m -f '{{.Dir}}' github.com/cert-manager/cert-manager)"
    cat "$source"/deploy/crds/cert-manager.io_{certificates,certificaterequests,issuers,clusterissuers}.yaml >"$partial/kinds.yaml"
    chmod 755 "$partial"
    mv -T "$partial" "$out"
fi
echo "$out"
