#!/usr/bin/env bash
# Others' compiled code, outside the checkout, shared by all checkouts: KUN_CACHE, or kun in the user's cache folder. It may be
# deleted at any time. A folder is named after the toolchain and after what is built how (Cargo.lock, features, profiles, flags), so nothing in it
# ever changes; where the right one is missing, the one of the same toolchain that was used last serves, and cargo builds what it lacks.
# usage: cache.sh restore|save debug|release
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/partial.sh

# So many folders are kept, those used last: of some states of Cargo.lock, or of two toolchains.
KEPT=4

main() {
    local action="$1" profile="$2"
    cache="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}"
    target="$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}/$profile")"
    all="$cache/rust-$profile"
    family="$all-$(toolchain | sha256sum | cut -c1-8)"
    exact="$family-$({ cat Cargo.lock .cargo/config.toml && features; } | sha256sum | cut -c1-16)"
    "$action"
}

# What decides how others' code is compiled, beside its versions.
features() {
    git ls-files -z 'Cargo.toml' '*/Cargo.toml' | xargs -0 cat
    echo "${RUSTFLAGS:-} ${CARGO_ENCODED_RUSTFLAGS:-} ${CFLAGS:-} ${CXXFLAGS:-}"
    env | grep '^CARGO_PROFILE_' | sort || true
}

restore() {
    [ ! -e "$target/deps" ] || return 0
    local from="" one folder
    # Each of them once: what cannot be thrown away is still there afterwards.
    while read -r one; do
        if is_whole "$one"; then
            from="$one"
            break
        fi
        echo "cache: $one is not as it was saved ($(differing "$one")); it is not used, and thrown away if that can be done" >&2
        throw_away "$one"
    done < <(serving)
    [ -n "$from" ] || return 0
    begin_partial "$target"
    copy "$from" "$partial"
    # What tells that all is there comes last.
    for folder in build .fingerprint deps; do
        rm -rf "${target:?}/$folder"
        mv -T "$partial/$folder" "$target/$folder"
    done
    # It was used now. A cache that is only read says so to nobody.
    touch "$from" 2>/dev/null || true
}

save() {
    [ ! -d "$exact" ] && [ -s target/test/build.json ] || return 0
    # Who has called says what that costs.
    can_be_written "$cache" || return 1
    begin_partial "$cache"
    copy "$target" "$partial"
    local empty
    empty="$(cd "$partial" && find deps \( -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' \) -empty | head -n 1)"
    if [ -n "$empty" ]; then
        echo "cache: $target/$empty is empty; nothing is saved" >&2
        return 1
    fi
    finish_partial "$exact"
    local old
    by_use "$all" | tail -n "+$((KEPT + 1))" | while read -r old; do throw_away "$old"; done
}

# Folders that would serve, the best first.
serving() {
    if [ -d "$exact" ]; then echo "$exact"; fi
    by_use "$family" | grep -vxF "$exact" || true
}

# by_use PREFIX: folders, what was used last first.
by_use() { find "$cache" -maxdepth 1 -type d -path "$1-*" -printf '%T@ %p\n' 2>/dev/null | sort -rn | cut -d' ' -f2- || true; }

# differing FOLDER: how many files, and one of them.
differing() {
    local paths
    paths="$({ manifest "$1" && cat "$1/manifest"; } 2>/dev/null | sort | uniq -u | cut -d' ' -f2- | sort -u)"
    echo "$(grep -c . <<<"$paths" || true) files, as $(head -n 1 <<<"$paths")"
}

# copy FROM TO: libraries as further links to the same file (a compiler writes another file and renames it), the rest as it is, with
# its times, by which cargo judges.
copy() {
    local from="$1" to="$2" ours libraries rest how=linked
    ours="$(our_names | paste -sd '|')"
    libraries="$(cd "$from" && find deps -maxdepth 1 -type f \( -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' \) | theirs)"
    rest="$(cd "$from" && find deps .fingerprint build -mindepth 1 -maxdepth 1 \
        ! -name '*.rlib' ! -name '*.rmeta' ! -name '*.so' | theirs)"
    copy_each "$from" "$to" --link <<<"$libraries" 2>/dev/null || {
        how=copied
        copy_each "$from" "$to" --force <<<"$libraries"
    }
    copy_each "$from" "$to" <<<"$rest"
    local count every
    count="$(grep -c . <<<"$libraries" || true)" every="$(find "$to" ! -type d | wc -l)"
    echo "cache: $count libraries $how, $((every - count)) other files copied from $from" >&2
}

# copy_each FROM TO [HOW]: where the folder has gone, or the disk is full, cp complains of each of thousands of files; one tells why.
copy_each() {
    local complaints
    complaints="$(cd "$1" && xargs -r cp --archive "${@:3}" --parents --target-directory="$2" 2>&1)" || {
        head -n 1 <<<"$complaints" >&2
        return 1
    }
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
