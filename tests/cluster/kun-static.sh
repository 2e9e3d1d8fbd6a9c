#!/usr/bin/env bash
# Links a program `kun` that cargo has built once more, into FILE and without shared libraries, as deploy/image/build.sh builds it: agents
# run in images of others, which may have another C library than this machine, or none. Only main.rs is compiled anew, of the
# library that the program was made of: two seconds instead of everything.
# usage: kun-static.sh PROGRAM FILE
set -euo pipefail
program="$(realpath "$1")" out="$(realpath --canonicalize-missing "$2")"
cd "$(dirname "$0")/../../deploy/kun"
deps="$(dirname "$program")/deps"

# newest NAME: the library of that crate that was there when the program was linked.
newest() {
    local found
    found="$(find "$deps" -maxdepth 1 -name "lib$1-*.rlib" ! -newer "$program" -printf '%T@ %p\n' | sort -rn | head -n 1 | cut -d' ' -f2-)"
    if [ -z "$found" ]; then
        echo "kun-static.sh: no library of $1 for $program in $deps" >&2
        exit 1
    fi
    echo "$found"
}

kun="$(newest kun)" options=()
if grep --quiet --text --max-count=1 _rjem_malloc_conf "$program"; then
    allocator="$(newest tikv_jemallocator)"
    options=(--cfg 'feature="jemalloc"' --extern "tikv_jemallocator=$allocator")
fi
rustc --crate-name kun --edition 2024 src/main.rs --cap-lints allow -C target-feature=+crt-static -C debuginfo=line-tables-only \
    --extern "kun=$kun" "${options[@]}" -L "dependency=$deps" -o "$out"
