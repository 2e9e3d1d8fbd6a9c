# shellcheck shell=bash
# Sourced by whoever takes a lock of the whole machine. Everybody may write into /run/lock: what somebody else has put there, or what leads
# elsewhere, is neither opened nor written to. What is the user's own nobody else can remove or rename.

# make_lock FILE: 1 if it is another one's.
make_lock() {
    mkdir -p "$(dirname "$1")"
    if [ ! -e "$1" ]; then (umask 077 && set -o noclobber && : >"$1") 2>/dev/null || true; fi
    is_our_lock "$1" || return 1
    # Or others could hold it.
    chmod 600 "$1"
}

# is_our_lock FILE
is_our_lock() {
    if [ -z "$(find "$1" -maxdepth 0 -type f -uid "$(id -u)" -links 1 2>/dev/null)" ]; then
        echo "$1 is not a lock of ours" >&2
        return 1
    fi
}
