#!/usr/bin/env bash
# Takes every processor for one to three seconds, again and again, by threads of a real-time class: what is left to others is what
# the kernel keeps for them, a twentieth. Ends with the process that is named, or after an hour and a half.
# usage: steal.sh SEED PID
set -euo pipefail

RANDOM=$(($1 + 7))
end=$((SECONDS + 5400))
while [ "$SECONDS" -lt "$end" ] && kill -0 "$2" 2>/dev/null; do
    sleep $((3 + RANDOM % 15))
    millis=$((1000 + RANDOM % 2000))
    for processor in $(seq 0 $(($(nproc) - 1))); do
        # It ends by itself: who would end it gets no processor either.
        chrt --fifo 50 taskset --cpu-list "$processor" bash -c \
            'end=$((${EPOCHREALTIME/./} + $0 * 1000)); while ((${EPOCHREALTIME/./} < end)); do :; done' "$millis" &
    done
    wait || true
done
