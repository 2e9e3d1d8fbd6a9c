#!/usr/bin/env bash
# What cargo calls in place of rustc for our own crates: the compiler with clippy's lints, and rustdoc's beside it for libraries. So
# one build serves lint and test; others' crates go to rustc itself and are shared with builds that lint nothing.
# CLIPPY_ARGS comes from outside: cargo compares it with what a crate was compiled with.
# usage: rustc.sh RUSTC ARGUMENT...
set -euo pipefail

main() {
    local rustc="$1"
    shift
    clippy-driver "$rustc" "$@"
    if is_library "$@"; then check_docs "$@"; fi
}

is_library() {
    local words=" $* "
    [[ "$words" == *" --crate-type lib "* && "$words" != *" --test "* ]]
}

# Links in doc comments that lead nowhere. Nothing is written: --check is what is not stable yet.
check_docs() {
    local argument arguments=()
    while [ $# -gt 0 ]; do
        argument="$1"
        shift
        case "$argument" in
        --emit=*) ;;
        --out-dir) shift ;;
        -C)
            case "${1:-}" in incremental=* | linker-plugin-lto*) ;; *) arguments+=(-C "${1:-}") ;; esac
            shift
            ;;
        *) arguments+=("$argument") ;;
        esac
    done
    RUSTC_BOOTSTRAP=1 rustdoc -Z unstable-options --check -D warnings "${arguments[@]}"
}

main "$@"
