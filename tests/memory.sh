#!/usr/bin/env bash
# Makes the folder in which tests of one run keep their files, and prints it: in memory, where there is such a place with room. Redis,
# etcd and KUN's store write each step to disk before the next; a disk that takes seconds for that, as it does after a build, would
# be what the tests measure. Benchmarks and clusters with nodes stay on the disk. Whatever runs have left that were killed goes.
set -euo pipefail
memory=/dev/shm room=$((4 << 20)) # KiB: ten times what the tests of one moment hold

main() {
    "$(dirname "$0")/noise/sweep.sh"
    local place
    for place in "$memory" "${TMPDIR:-/tmp}"; do remove_left "$place"; done
    has_room || memory="${TMPDIR:-/tmp}"
    # Whoever wants to keep files looks for them when the next run has begun, too.
    if [ -n "${KUN_KEEP:-}" ]; then echo "$memory"; else mktemp -d "$memory/kun-tests.XXXXXX"; fi
}

has_room() {
    [ -w "$memory" ] && awk -v at="$memory" '$2 == at && $4 !~ /noexec/ { found = 1 } END { exit !found }' /proc/mounts &&
        [ "$(df --output=avail -k "$memory" | tail -n 1)" -ge "$room" ] &&
        awk -v room="$room" '$1 == "MemAvailable:" { exit $2 < 2 * room }' /proc/meminfo
}

# remove_left PLACE. A run is there as long as a process has its folder as TMPDIR; one that begins has none for a moment.
remove_left() {
    local folder users
    # There may be no such place.
    {
        find "$1" -maxdepth 1 -type d -name 'kun-tests.*' -user "$(id -u)" -mmin +1 -print0 2>/dev/null || true
    } | while read -r -d '' folder; do
        # It fails where a process has ended since, whatever it finds.
        users="$(grep -lszxF "TMPDIR=$folder" /proc/[0-9]*/environ || true)"
        # Whoever still writes there keeps it, and no run fails for it.
        [ -n "$users" ] || rm -rf "$folder" || true
    done
}

main
