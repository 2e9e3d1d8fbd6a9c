#!/usr/bin/env bash
# cargo-deny, built once into the cache: bans, licences and sources as deny.toml says.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/partial.sh

VERSION=0.20.2

main() {
    local name folder
    # Another machine that shares the cache may have another processor or library of C, on which it does not run.
    name="cargo-deny-$VERSION-$(toolchain | sha256sum | cut -c1-8)"
    cache="$(cache_for "$name")"
    folder="$cache/$name"
    if ! is_whole "$folder"; then build "$folder"; fi
    touch "$folder" 2>/dev/null || true
    "$folder/bin/cargo-deny" --log-level error check bans licenses sources
}

# build FOLDER
build() {
    echo "building cargo-deny $VERSION (minutes, once) into $1" >&2
    begin_partial "$cache"
    # Its sources may be here, and the registry not.
    install || install --offline
    rm -rf "$partial/build"
    mv "$partial/root/bin" "$partial/bin"
    # Cargo notes there what it has installed, whether it is to or not.
    rm -rf "$partial/root"
    finish_partial "$1"
}

# install FLAG...: of what it is built with only speed of building counts.
install() {
    CARGO_TARGET_DIR="$partial/build" CARGO_PROFILE_DEV_DEBUG=0 RUSTC_WORKSPACE_WRAPPER='' \
        cargo install "$@" --quiet --locked --debug --no-track --version "$VERSION" --root "$partial/root" cargo-deny
}

main
