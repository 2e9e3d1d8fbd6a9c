#!/usr/bin/env bash
# Unit and property tests of the crates that differ from a commit, and then of those that lean on them: what can be said within a
# minute or two of a change. Nothing of it starts a system.
# usage: [BASE=COMMIT] quick.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# Test targets that need no process but themselves.
PURE="admission api applying identities merging planning"

main() {
    tests/cache.sh restore debug || echo "the cache cannot be read; others' code is compiled anew" >&2
    local changed
    changed="$(changed_crates)"
    if [ -z "$changed" ]; then
        echo "quick: no crate differs from ${BASE:-HEAD}"
        return
    fi
    local crate later
    for crate in $changed; do tested "$crate"; done
    later="$(for crate in $changed; do leaning_on "$crate"; done | sort -u | grep -vxF "$changed" || true)"
    for crate in $later; do tested "$crate"; done
}

# Packages whose folder holds a file that differs; the deepest folder counts. What all of them are built from makes all differ.
changed_crates() {
    { git diff -z --name-only "${BASE:-HEAD}" && git ls-files -z --others --exclude-standard; } | while read -r -d '' file; do
        folder="$(dirname "$file")"
        while [ ! -e "$folder/Cargo.toml" ] && [ "$folder" != . ]; do folder="$(dirname "$folder")"; done
        if [ "$folder" != . ]; then
            name_of "$folder/Cargo.toml"
        elif [ "$file" = Cargo.toml ] || [ "$file" = Cargo.lock ]; then
            git ls-files '*/Cargo.toml' | while read -r manifest; do name_of "$manifest"; done
        fi
    done | sort -u
}

name_of() { sed -n '0,/^name = /s/^name = "\(.*\)"/\1/p' "$1"; }

leaning_on() {
    cargo tree --quiet --offline --workspace --invert "$1" --edges normal --prefix none --format '{p}' |
        sed -nE 's/^([a-z-]+) v[^ ]+ \(.*/\1/p' | grep -vxE "$1|tests|bench|differential"
}

tested() {
    local targets=() target folder
    folder="$(cargo metadata --quiet --offline --no-deps --format-version 1 | tr '{' '\n' |
        sed -nE "s/^\"name\":\"$1\",\"version\":.*path\+file:\/\/([^#\"]*)[#\"].*/\1/p" | head -n 1)"
    [ ! -e "$folder/src/lib.rs" ] || targets+=(--lib)
    for target in $PURE; do
        if grep -q "name = \"$target\"" "$folder/Cargo.toml" || [ -e "$folder/tests/$target.rs" ]; then targets+=(--test "$target"); fi
    done
    [ "${#targets[@]}" -gt 0 ] || targets=(--bins)
    echo "quick: $1 ${targets[*]}"
    cargo test --quiet --package "$1" "${targets[@]}"
}

main
