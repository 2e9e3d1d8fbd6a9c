#!/usr/bin/env bash
# Unit and property tests of the crates that differ from a commit, and of those that lean on them: what can be said within a
# minute or two of a change. Nothing of it starts a system. Each program runs as soon as it is built, while others are being built.
# usage: [BASE=COMMIT] quick.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lint/settings.sh
. tests/signals.sh

# Test targets that need no process but themselves.
PURE="admission api applying cache cache_history chart identities merging planning strangers"

main() {
    tests/cache.sh restore debug || echo "the cache cannot be read; others' code is compiled anew" >&2
    local changed crates crate leaning
    changed="$(changed_crates)"
    if [ -z "$changed" ]; then
        echo "quick: no crate differs from ${BASE:-HEAD}"
        return
    fi
    crates="$changed"
    for crate in $changed; do
        leaning="$(leaning_on "$crate")" || {
            echo "quick: cargo does not say who leans on $crate, and nobody of them would be tested" >&2
            return 1
        }
        crates+=$'\n'"$leaning"
    done
    crates="$(grep . <<<"$crates" | sort -u)"
    echo "quick: ${crates//$'\n'/ }"
    local targets=() folders=" "
    for crate in $crates; do
        local folder
        folder="$(folder_of "$crate")"
        folders+="$folder "
        targets_of "$crate" "$folder"
    done
    # What builds and what runs is one group: it ends with this script. Who is signalled alone, as by make, would leave both behind.
    set -m
    { "${BUILD_TESTS[@]}" "${targets[@]}" | programs | run_each; } </dev/null &
    running=$!
    set +m
    trap end EXIT
    end_once
    local status=0
    wait "$running" || status=$?
    trap - EXIT HUP INT TERM
    return "$status"
}

# shellcheck disable=SC2329 # The trap calls it.
end() { kill -- "-$running" 2>/dev/null || true; }

# Packages whose folder holds a file that differs; the deepest folder counts. What all of them are built from makes all differ.
changed_crates() {
    { git diff -z --name-only "${BASE:-HEAD}" && git ls-files -z --others --exclude-standard; } | while read -r -d '' file; do
        folder="$(dirname "$file")"
        while [ ! -e "$folder/Cargo.toml" ] && [ "$folder" != . ]; do folder="$(dirname "$folder")"; done
        if [ "$folder" != . ]; then
            name_of "$folder/Cargo.toml"
        # What lies beside the packages and is read by the tests of one.
        elif [[ "$file" == deploy/chart/* ]]; then
            echo kun
            tell_of_helm
        elif [ "$file" = deploy/install.yaml ]; then
            echo controller
            tell_of_helm
        elif [ "$file" = Cargo.toml ] || [ "$file" = Cargo.lock ]; then
            git ls-files '*/Cargo.toml' | while read -r manifest; do name_of "$manifest"; done
        fi
    done | sort -u
}

# Once, however many of its files differ.
tell_of_helm() {
    [ -n "${told:-}" ] || echo 'quick: what helm makes of the chart is looked at by make test TESTS=system' >&2
    told=1
}

name_of() { sed -n '0,/^name = /s/^name = "\(.*\)"/\1/p' "$1"; }

# Cargo may download for it what the build needs as well, as in a new clone, or with a new dependency.
leaning_on() {
    local tree
    tree="$(cargo tree --quiet --workspace --invert "$1" --edges normal --prefix none --format '{p}')" || return 1
    sed -nE 's/^([a-z-]+) v[^ ]+ \(.*/\1/p' <<<"$tree" | grep -vxE "$1|tests|bench|differential" || true
}

folder_of() {
    cargo metadata --quiet --offline --no-deps --format-version 1 | tr '{' '\n' |
        sed -nE "s/^\"name\":\"$1\",\"version\":.*path\+file:\/\/([^#\"]*)[#\"].*/\1/p" | head -n 1
}

# targets_of CRATE FOLDER: adds to the targets. Cargo takes them of all packages, and those that are not concerned are built already.
targets_of() {
    local target
    if [ ! -e "$2/src/lib.rs" ]; then
        targets+=(--bin "$1")
    elif [[ " ${targets[*]} " != *" --lib "* ]]; then
        targets+=(--lib)
    fi
    for target in $PURE; do
        if has_target "$2" "$target"; then targets+=(--test "$target"); fi
    done
}

# has_target FOLDER NAME: declared, or found by cargo, where it is let look.
has_target() {
    grep -q "name = \"$2\"" "$1/Cargo.toml" || { [ -e "$1/tests/$2.rs" ] && ! grep -q '^autotests = false' "$1/Cargo.toml"; }
}

# Of cargo's messages the test programs: folder of the package, name, program.
programs() {
    sed -unE 's/^\{"reason":"compiler-artifact",.*"manifest_path":"([^"]*)\/Cargo\.toml","target":\{[^}]*"name":"([^"]*)".*"profile":\{[^}]*"test":true\}.*"executable":"([^"]*)".*/\1 \2 \3/p'
}

# Runs the tests of the folders concerned, where cargo would run them.
run_each() {
    local folder name program failed=""
    while read -r folder name program; do
        [[ "$folders" == *" $folder "* ]] || continue
        echo "quick: ${folder##*/}, $name"
        (cd "$folder" && CARGO_MANIFEST_DIR="$folder" "$program" --quiet </dev/null) || failed+=" $name"
    done
    [ -z "$failed" ] || {
        echo "quick: failed:$failed" >&2
        return 1
    }
}

main
