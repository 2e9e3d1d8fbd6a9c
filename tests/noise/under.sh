#!/usr/bin/env bash
# Runs a command on a machine that stands still now and then, as others' machines do: for seconds no file is written or synced, and
# for seconds both processors do something else. What fails here and not elsewhere is a test that asks how long something takes. The last
# line says how much of that there was; without any of it, or where it ended before the command, the run has failed. Without a command it
# only says what is missing for that.
# usage: [NOISE_SEED=1] under.sh [COMMAND [ARGUMENT...]]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"

# Every limit of the tests that means "hung" is stretched by this.
STRETCH=4
# As large as all files of the tests may become; it takes only what is written.
SIZE=24G

main() {
    look
    if [ $# -gt 0 ]; then under "$@"; fi
}

look() {
    [ "$(id -u)" = 0 ] || {
        echo "noise: missing: root, to freeze a file system and to take processors from others" >&2
        exit 1
    }
    seed="${NOISE_SEED:-1}"
    [[ "$seed" =~ ^[0-9]{1,9}$ ]] || {
        echo "noise: NOISE_SEED is a number of at most nine digits, not ${seed@Q}" >&2
        exit 1
    }
    chrt --fifo 50 true || {
        echo "noise: missing: the right to a real-time class (chrt --fifo), to take processors from others" >&2
        exit 1
    }
}

under() {
    "$here/sweep.sh"
    work="$(mktemp -d /var/tmp/kun-noise.XXXXXX)"
    trap end EXIT
    # Whoever uses the folder inherits this, and who sweeps asks for it.
    exec 5<"$work"
    flock 5
    truncate -s "$SIZE" "$work/disk.img"
    mkfs.ext4 -q "$work/disk.img"
    mkdir "$work/disk"
    mount -o loop "$work/disk.img" "$work/disk"
    # What is frozen and thawed is always this, or it might be what the disk is mounted on.
    mkdir "$work/disk/tmp"
    fsfreeze --freeze "$work/disk/tmp"
    fsfreeze --unfreeze "$work/disk/tmp"
    touch "$work/freezes" "$work/steals"
    when_it_works "$here/freeze.sh" "$work/disk" "$seed" $$ "$work/freezes" &
    when_it_works "$here/steal.sh" "$seed" $$ "$work/steals" &
    echo "noise: seed $seed" >&2
    local status=0
    (
        echo "$BASHPID" >"$work/command"
        TMPDIR="$work/disk/tmp" KUN_STATE="$work/disk/clusters" KUN_STRETCH="$STRETCH" exec "$@"
    ) || status=$?
    # Before anything else ends them.
    noises="$(jobs -rp | wc -l)"
    tell || { [ "$status" != 0 ] || status=1; }
    exit "$status"
}

# when_it_works NOISE ARGUMENT...: begins when the command has started something. Before that it may wait for another run on this machine to
# end, which is not to be disturbed.
when_it_works() {
    # Ctrl-C is for the command: the noise goes on until that has ended.
    trap '' INT
    local command
    until command="$(cat "$work/command" 2>/dev/null)" && [ -n "$(cat "/proc/$command/task/"*/children 2>/dev/null)" ]; do
        kill -0 $$ 2>/dev/null || exit 0
        sleep 0.2
    done
    exec "$@"
}

tell() {
    local file
    printf 'noise: seed %s; the file system stood still %s, the processors %s\n' \
        "$seed" "$(sum "$work/freezes")" "$(sum "$work/steals")" >&2
    [ "$noises" = 2 ] || {
        echo "noise: the noise ended before the command did: what ran since then ran on a quiet machine" >&2
        return 1
    }
    for file in freezes steals; do
        [ -s "$work/$file" ] || {
            echo "noise: the noise never ran ($file: 0): nothing is known of a machine that stands still" >&2
            return 1
        }
    done
}

# sum FILE: of milliseconds, one a line.
sum() { awk '{ all += $1 } END { printf "%d times, %.1f s", NR, all / 1000 }' "$1"; }

# Whatever happened, nothing stays frozen or mounted.
# shellcheck disable=SC2329 # The trap calls it.
end() {
    # Nor does a further Ctrl-C.
    trap '' HUP INT TERM
    pkill -P $$ 2>/dev/null || true
    wait 2>/dev/null || true
    # A freeze that was under way may come after a thaw.
    for _ in 1 2 3 4 5; do
        fsfreeze --unfreeze "$work/disk/tmp" 2>/dev/null || true
        umount "$work/disk" 2>/dev/null && break
        sleep 1
    done
    ! mountpoint -q "$work/disk" || umount "$work/disk" 2>/dev/null || umount --lazy "$work/disk" 2>/dev/null || true
    rm -rf "$work"
}

main "$@"
