#!/usr/bin/env bash
# Builds what is tested and what it is tested with, and runs every test; where the time went stands at the end. With words only
# the suites whose names contain one of them.
# usage: [NOISE=1] run.sh [WORD...]
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/signals.sh

main() {
    # Before minutes of building.
    case "${NOISE:=0}" in
    0) ;;
    1) tests/noise/under.sh ;;
    *)
        echo "NOISE is 0 or 1, not ${NOISE@Q}" >&2
        exit 2
        ;;
    esac
    tests/setup.sh redis kubectl
    forget_phases
    build
    # What was built is on disk before the first test waits for the disk.
    sync
    # Another run of this checkout, whose build has ended at the same time, may have taken them: they are no more than lines of a table.
    mv target/test/phases target/test/phases.done 2>/dev/null || true
    TMPDIR="$(tests/memory.sh)"
    export TMPDIR
    if [ "$NOISE" = 1 ]; then
        exec tests/noise/under.sh "${CARGO_TARGET_DIR:-target}/debug/suites" target/test/build.json target/test/phases.done "$@"
    fi
    exec "${CARGO_TARGET_DIR:-target}/debug/suites" target/test/build.json target/test/phases.done "$@"
}

# What an earlier run has written down that was killed, or a build that somebody ran by itself, is not of this one. What lint has written down is,
# where it has just built what is tested here, as in .ci/run.
forget_phases() {
    rm -f target/test/phases.done
    if [ -z "${KUN_LINTED:-}" ]; then rm -f target/test/phases; fi
    unset KUN_LINTED
}

# Kubernetes takes minutes, once: it is built beside our own build, and ends with it where that fails or is interrupted. All processes of each are
# one group; build.sh ends its own.
build() {
    set -m
    tests/phase.sh "Kubernetes and its images" tests/cluster/all.sh </dev/null &
    cluster=$!
    tests/build.sh </dev/null &
    built=$!
    set +m
    # Phases that end after the one that failed are of a run that failed, too.
    trap 'end_builds; rm -f target/test/phases' EXIT
    end_once
    wait "$built"
    wait "$cluster"
    trap - EXIT HUP INT TERM
}

# Once one has ended, its number may be that of somebody else's group.
# shellcheck disable=SC2317,SC2329 # The trap calls it.
end_builds() {
    local one
    for one in $(jobs -rp); do kill -- "-$one" 2>/dev/null || true; done
}

main "$@"
