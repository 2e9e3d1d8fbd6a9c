#!/usr/bin/env bash
# Removes what runs under noise that were killed have left (under.sh): a file system that may be frozen, in which processes wait that
# nobody can end before. Whoever uses one of the folders holds its lock.
set -euo pipefail

for folder in /var/tmp/kun-noise.*; do
    [ -d "$folder" ] && [ "$(id -u)" = 0 ] || continue
    # A run that goes on has lost one of its freezes.
    fsfreeze --unfreeze "$folder/disk/tmp" 2>/dev/null || true
    (
        exec 5<"$folder"
        # What was killed ends as soon as it is thawed.
        flock --timeout 5 5 || exit 0
        echo "noise: removes $folder, which a run has left that was killed" >&2
        if mountpoint -q "$folder/disk"; then umount "$folder/disk" || exit 0; fi
        rm -rf "$folder"
    )
done
