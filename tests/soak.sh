#!/usr/bin/env bash
# Runs the tests with their seeded campaigns at many times their usual size, and says at the end, however that was, how many faults were
# injected and how many acknowledged writes were lost.
# usage: [SOAK=20] soak.sh [WORD...]
set -euo pipefail
cd "$(dirname "$0")/.."

# How often; no suite is given longer than for the most (tests/suites).
SOAK="${SOAK:-20}"
MOST=1000
# With fewer faults nothing is known.
FAULTS=500

main() {
    if ! [[ "$SOAK" =~ ^[1-9][0-9]{0,3}$ ]] || [ "$SOAK" -gt "$MOST" ]; then
        echo "soak: SOAK is a number from 1 to $MOST, not ${SOAK@Q}" >&2
        exit 2
    fi
    tally="$(mktemp)"
    trap 'rm -f "$tally"' EXIT
    local status=0
    run "$@" || status=$?
    tell || [ "$status" != 0 ] || status=1
    exit "$status"
}

# Who is signalled alone, as by make, passes it on: the run ends what it has started, and what was counted until then is told. A shell hears of
# a signal only where it waits for what runs beside it, and has that ignore Ctrl-C.
run() {
    local signal status
    KUN_TALLY="$tally" KUN_SOAK="$SOAK" PROPTEST_CASES=$((256 * SOAK)) \
        env --default-signal=INT tests/run.sh "$@" </dev/null &
    running=$!
    for signal in HUP INT TERM; do
        # shellcheck disable=SC2064 # The name is meant.
        trap "pass $signal" "$signal"
    done
    # A signal ends the wait, but not what is waited for.
    while :; do
        status=0
        wait "$running" || status=$?
        kill -0 "$running" 2>/dev/null || break
    done
    return "$status"
}

# shellcheck disable=SC2329 # The traps call it.
pass() { kill -s "$1" "$running" 2>/dev/null || true; }

# Lines of the tally: faults, writes acknowledged, writes lost, and of what.
tell() {
    awk -v least="$FAULTS" '
        { faults += $1; told += $2; lost += $3 }
        $4 == "cluster:" { hits += $1 }
        END {
            printf "soak: %d faults injected, %d of them into Redis clusters, %d writes acknowledged, %d of them lost\n", faults, hits, told, lost
            if (faults < least) printf "soak: with fewer than %d faults nothing is known\n", least
            exit faults < least || lost > 0
        }' "$tally"
}

main "$@"
