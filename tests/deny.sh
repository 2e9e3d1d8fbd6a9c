#!/usr/bin/env bash
# cargo-deny, built once into the cache: bans, licences and sources as deny.toml says.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/partial.sh

VERSION=0.20.2

cache="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}"
folder="$cache/cargo-deny-$VERSION"
if [ ! -x "$folder/bin/cargo-deny" ]; then
    echo "building cargo-deny $VERSION (minutes, once) into $folder" >&2
    begin_partial "$cache"
    # Of what it is built with only speed of building counts.
    CARGO_TARGET_DIR="$partial/build" CARGO_PROFILE_DEV_DEBUG=0 RUSTC_WORKSPACE_WRAPPER='' \
        cargo install --quiet --locked --debug --no-track --version "$VERSION" --root "$partial/root" cargo-deny
    rm -rf "$partial/build"
    mv "$partial/root/bin" "$partial/bin"
    # Cargo notes there what it has installed, whether it is to or not.
    rm -rf "$partial/root"
    # Without its program it is of no use to anybody.
    if [ -d "$folder" ] && [ ! -x "$folder/bin/cargo-deny" ]; then throw_away "$folder"; fi
    finish_partial "$folder"
fi
keep_used "$cache" "$folder"
"$folder/bin/cargo-deny" --log-level error check bans licenses sources
