#!/usr/bin/env bash
# Freezes a file system for one to four seconds, again and again: who writes or syncs waits. Ends with the file system or the process
# that is named, or after an hour and a half.
# usage: freeze.sh FOLDER SEED PID
set -euo pipefail

RANDOM="$2"
end=$((SECONDS + 5400))
while [ "$SECONDS" -lt "$end" ] && kill -0 "$3" 2>/dev/null && mountpoint -q "$1"; do
    sleep $((4 + RANDOM % 20))
    # Who thaws it is there before it is frozen: what is frozen for ever could not even be killed.
    (
        trap '' TERM
        sleep "$((1 + RANDOM % 3)).$((RANDOM % 10))"
        fsfreeze --unfreeze "$1" 2>/dev/null || true
    ) &
    thaw=$!
    fsfreeze --freeze "$1" 2>/dev/null || true
    wait "$thaw"
    # The thaw may have come before the freeze.
    fsfreeze --unfreeze "$1" 2>/dev/null || true
done
