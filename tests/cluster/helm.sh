#!/usr/bin/env bash
# Builds helm once, and prints its path. Named after what goes into it, as build.sh does it.
set -euo pipefail
cd "$(dirname "$0")/helm"
. ../go.sh

cache="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}"
hash="$(cat go.mod go.sum ../helm.sh ../go.sh | sha256sum | cut -c1-16)"
out="$cache/helm-$hash"

if [ ! -x "$out" ]; then
    if ! command -v go >/dev/null 2>&1; then
        echo "missing: go, $(grep '^go ' go.mod | cut -d' ' -f2) or newer. See https://go.dev/doc/install" >&2
        exit 1
    fi
    mkdir -p "$cache"
    # As tools.sh: one build at a time.
    exec 9>"$cache/build.lock"
    flock 9
fi
if [ ! -x "$out" ]; then
    echo "building helm (a minute, once) into $out" >&2
    partial="$(mktemp "$cache/partial.XXXXXX")"
    trap 'rm -f "$partial"' EXIT
    version="$(go list -mod=mod -m -f '{{.Version}}' helm.sh/helm/v3)"
    build_go -o "$partial" \
        -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$version" helm.sh/helm/v3/cmd/helm
    chmod 755 "$partial"
    mv "$partial" "$out"
fi
echo "$out"
