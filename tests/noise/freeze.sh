#!/usr/bin/env bash
# Freezes a file system for one to four seconds, again and again: who writes or syncs waits. A line of DONE says for how many
# milliseconds. Ends with the file system or the process that is named, or after twelve hours.
# usage: freeze.sh FOLDER SEED PID DONE
set -euo pipefail

# It is there only in what is mounted on the folder: the folder alone lies in the machine's own file system.
inside="$1/tmp"
RANDOM="$2"
# The longest soak; the process's number may be somebody else's by then.
end=$((SECONDS + 12 * 3600))
while [ "$SECONDS" -lt "$end" ] && kill -0 "$3" 2>/dev/null && mountpoint -q "$1"; do
    # Drawn here: another shell would draw by a seed of its own.
    length="$((1 + RANDOM % 3)).$((RANDOM % 10))" pause=$((4 + RANDOM % 20))
    # Who thaws it is there before it is frozen: what is frozen for ever could not even be killed.
    (
        trap '' TERM
        sleep "$length"
        fsfreeze --unfreeze "$inside" 2>/dev/null || true
    ) &
    thaw=$!
    begin="${EPOCHREALTIME/[.,]/}"
    if fsfreeze --freeze "$inside" 2>/dev/null; then
        wait "$thaw"
        echo $(((${EPOCHREALTIME/[.,]/} - begin) / 1000)) >>"$4"
    fi
    wait "$thaw"
    # The thaw may have come before the freeze.
    fsfreeze --unfreeze "$inside" 2>/dev/null || true
    sleep "$pause"
done
