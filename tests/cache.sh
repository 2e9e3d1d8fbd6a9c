#!/usr/bin/env bash
# Others' compiled code, outside the checkout, shared by all checkouts: KUN_CACHE, or kun in the user's cache folder. It may be
# deleted whenever nothing is built or tested. A folder is named after the toolchain and after what is built how (Cargo.lock, features, profiles, flags), so nothing in it
# ever changes; where the right one is missing, the newest of the same toolchain serves, and cargo builds what it lacks.
# usage: cache.sh restore|save debug|release
set -euo pipefail
cd "$(dirname "$0")/.."

# Others' code of so many states of Cargo.lock is kept.
KEPT=3

main() {
    local action="$1" profile="$2"
    cache="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}"
    target="$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}/$profile")"
    family="$cache/rust-$profile-$(rustc -vV | sha256sum | cut -c1-8)"
    exact="$family-$({ cat Cargo.lock .cargo/config.toml && features; } | sha256sum | cut -c1-16)"
    "$action"
}

# What decides how others' code is compiled, beside its versions.
features() {
    git ls-files 'Cargo.toml' '*/Cargo.toml' | xargs cat
    echo "${RUSTFLAGS:-} ${CARGO_ENCODED_RUSTFLAGS:-}"
}

restore() {
    [ ! -e "$target/deps" ] || return 0
    local from="$exact"
    [ -d "$from" ] || from="$({ ls -dt "$family"-* 2>/dev/null || true; } | head -n 1)"
    [ -n "$from" ] || return 0
    mkdir -p "$target"
    partial="$(mktemp -d "$target/partial.XXXXXX")"
    trap 'rm -rf "$partial"' EXIT
    copy "$from" "$partial"
    # What tells that all is there comes last.
    for folder in build .fingerprint deps; do
        rm -rf "${target:?}/$folder"
        mv -T "$partial/$folder" "$target/$folder"
    done
}

save() {
    [ ! -d "$exact" ] && [ -s target/test/build.json ] || return 0
    mkdir -p "$cache"
    # Left by runs that were killed.
    find "$cache" -maxdepth 1 -name 'partial.*' -mmin +1440 -exec rm -rf {} +
    partial="$(mktemp -d "$cache/partial.XXXXXX")"
    trap 'rm -rf "$partial"' EXIT
    copy "$target" "$partial"
    mv -T "$partial" "$exact" 2>/dev/null || [ -d "$exact" ]
    ls -dt "$family"-* | tail -n +$((KEPT + 1)) | xargs -r rm -rf
}

# copy FROM TO: libraries as further links to the same file (a compiler writes another file and renames it), the rest as it is, with
# its times, by which cargo judges.
copy() {
    local from="$1" to="$2" ours libraries rest
    ours="$(our_names | paste -sd '|')"
    (
        cd "$from"
        libraries="$(find deps -maxdepth 1 -type f \( -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' \) | theirs)"
        rest="$(find deps .fingerprint build -mindepth 1 -maxdepth 1 ! -name '*.rlib' ! -name '*.rmeta' ! -name '*.so' | theirs)"
        xargs cp --archive --link --parents --target-directory="$to" <<<"$libraries" 2>/dev/null ||
            xargs cp --archive --force --parents --target-directory="$to" <<<"$libraries"
        xargs cp --archive --parents --target-directory="$to" <<<"$rest"
    )
}

# Leaves out what is ours: it is built in each checkout anew, and named after where that is.
theirs() { grep -vE "/(lib)?($ours)-[0-9a-f]{16}(\..*)?$" || true; }

# Packages and targets of this workspace, as files are named after them.
our_names() {
    cargo metadata --quiet --locked --offline --no-deps --format-version 1 | tr '{' '\n' |
        sed -nE 's/^"name":"([^"]*)","version":.*/\1/p; s/^"kind":.*"name":"([^"]*)","src_path":.*/\1/p' |
        awk '{ print; gsub("-", "_"); print }' | sort -u
}

main "$@"
