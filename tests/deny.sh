#!/usr/bin/env bash
# cargo-deny, built once into the cache: bans, licences and sources as deny.toml says.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=0.20.2

folder="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}/cargo-deny-$VERSION"
if [ ! -x "$folder/bin/cargo-deny" ]; then
    echo "building cargo-deny $VERSION (minutes, once) into $folder" >&2
    build="$(mktemp -d)"
    trap 'rm -rf "$build"' EXIT
    # Of what it is built with only speed of building counts.
    CARGO_TARGET_DIR="$build" CARGO_PROFILE_DEV_DEBUG=0 RUSTC_WORKSPACE_WRAPPER= \
        cargo install --quiet --locked --debug --version "$VERSION" --root "$folder" cargo-deny
fi
"$folder/bin/cargo-deny" --log-level error check bans licenses sources
