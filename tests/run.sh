#!/usr/bin/env bash
# Runs every test that is built; what failed is told again at the end. The scenarios on a cluster with nodes mostly wait for
# it: they run beside all the others.
set -euo pipefail
cd "$(dirname "$0")/.."

beside=installed

main() {
    log="$(mktemp)"
    trap 'rm -f "$log"' EXIT
    TMPDIR="$(tests/memory.sh)"
    export TMPDIR
    trap 'exit 130' INT
    both 2>&1 | tee "$log" || {
        printf '\nWhat failed, from the %d lines above:\n' "$(wc -l <"$log")"
        grep -aE -A2 '\.\.\. FAILED|: FAILED;|panicked at|^error' "$log" | cut -c1-600 | tail -n 60
        exit 1
    }
}

# Who interrupts this ends both: what runs in the background does not hear it.
both() (
    cargo test --workspace --test "$beside" &
    other=$!
    trap 'pkill -P "$other" || true; kill "$other" 2>/dev/null || true' EXIT
    trap 'exit 130' INT TERM
    outcome=0
    KUN_BESIDE="$beside" cargo test --workspace --no-fail-fast || outcome=$?
    wait "$other" || outcome=$?
    exit "$outcome"
)

main
