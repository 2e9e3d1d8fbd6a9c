#!/usr/bin/env bash
# Runs a command on a machine that stands still now and then, as others' machines do: for seconds no file is written or synced, and
# for seconds both processors do something else. What fails here and not elsewhere is a test that asks how long something takes.
# usage: [NOISE_SEED=1] under.sh COMMAND [ARGUMENT...]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"

# Every limit of the tests that means "hung" is stretched by this.
STRETCH=4
# As large as all files of the tests may become; it takes only what is written.
SIZE=24G

main() {
    [ "$(id -u)" = 0 ] || {
        echo "noise: missing: root, to freeze a file system and to take processors from others" >&2
        exit 1
    }
    [[ "${NOISE_SEED:-1}" =~ ^[0-9]+$ ]] || {
        echo "noise: NOISE_SEED is a number, not ${NOISE_SEED@Q}" >&2
        exit 1
    }
    chrt --fifo 50 true || {
        echo "noise: missing: the right to a real-time class (chrt --fifo), to take processors from others" >&2
        exit 1
    }
    work="$(mktemp -d /var/tmp/kun-noise.XXXXXX)"
    trap end EXIT
    truncate -s "$SIZE" "$work/disk.img"
    mkfs.ext4 -q "$work/disk.img"
    mkdir "$work/disk"
    mount -o loop "$work/disk.img" "$work/disk"
    fsfreeze --freeze "$work/disk"
    fsfreeze --unfreeze "$work/disk"
    "$here/freeze.sh" "$work/disk" "${NOISE_SEED:-1}" $$ &
    "$here/steal.sh" "${NOISE_SEED:-1}" $$ &
    echo "noise: seed ${NOISE_SEED:-1}" >&2
    mkdir "$work/disk/tmp"
    TMPDIR="$work/disk/tmp" KUN_STATE="$work/disk/clusters" KUN_STRETCH="$STRETCH" "$@"
}

# Whatever happened, nothing stays frozen or mounted.
end() {
    pkill -P $$ 2>/dev/null || true
    wait 2>/dev/null || true
    # A freeze that was under way may come after a thaw.
    for _ in 1 2 3 4 5; do
        fsfreeze --unfreeze "$work/disk" 2>/dev/null || true
        umount "$work/disk" 2>/dev/null && break
        sleep 1
    done
    ! mountpoint -q "$work/disk" || umount "$work/disk" 2>/dev/null || umount --lazy "$work/disk" 2>/dev/null || true
    rm -rf "$work"
}

main "$@"
