#!/usr/bin/env bash
# Takes every processor for one to three seconds, again and again, by threads of a real-time class: what is left to others is what
# the kernel keeps for them, a twentieth. A line of DONE says for how many milliseconds. Ends with the process that is named, or after
# twelve hours.
# usage: steal.sh SEED PID DONE
set -euo pipefail

# Those this process may run on, one a line: in a container not all that there are.
processors() {
    sed -n 's/^Cpus_allowed_list:\s*//p' /proc/self/status | tr ',' '\n' |
        while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done
}

RANDOM=$(($1 + 7))
# The longest soak; the process's number may be somebody else's by then.
end=$((SECONDS + 12 * 3600))
while [ "$SECONDS" -lt "$end" ] && kill -0 "$2" 2>/dev/null; do
    millis=$((1000 + RANDOM % 2000)) pause=$((3 + RANDOM % 15)) thieves=() taken=1
    for processor in $(processors); do
        # It ends by itself: who would end it gets no processor either.
        # shellcheck disable=SC2016 # It computes there.
        chrt --fifo 50 taskset --cpu-list "$processor" bash -c \
            'end=$((${EPOCHREALTIME/[.,]/} + $0 * 1000)); while ((${EPOCHREALTIME/[.,]/} < end)); do :; done' "$millis" &
        thieves+=($!)
    done
    for thief in "${thieves[@]}"; do wait "$thief" || taken=0; done
    if [ "$taken" = 1 ]; then echo "$millis" >>"$3"; fi
    sleep "$pause"
done
