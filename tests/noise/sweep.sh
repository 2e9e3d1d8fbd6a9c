#!/usr/bin/env bash
# Removes what runs under noise that were killed have left (under.sh): a file system that may be frozen, in which processes wait that
# nobody can end before. Whoever uses one of the folders holds its lock.
set -euo pipefail

# is_ours FOLDER: everybody may write into /var/tmp, and root is about to thaw, unmount and remove what is there.
is_ours() { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }

[ "$(id -u)" = 0 ] || exit 0
for folder in /var/tmp/kun-noise.*; do
    is_ours "$folder" || continue
    # Who was killed early has left no disk.
    [ ! -e "$folder/disk" ] || is_ours "$folder/disk" || continue
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
