#!/usr/bin/env bash
# Ends a cluster and removes what it left, also after a crash, or when its state was deleted; does nothing where there is none.
# usage: [CLUSTER=0..15] down.sh
set -euo pipefail
. "$(dirname "$0")/settings.sh"
. "$HERE/cgroups.sh"

main() {
    settle "${CLUSTER:-0}"
    # A machine that starts again may have lost its locks, but not the state: its keys would be taken for those of the next one.
    read_state || [ -e "$STATE" ] || exit 0
    if [ ! -e "$STATE/groups" ] || [ ! -e "$STATE/first.pid" ]; then recover; fi
    if [ -e "$STATE/groups" ]; then thaw; fi
    end_processes
    if [ "${1:-}" != --claimed ]; then take_lock; fi
    if [ -e "$STATE/groups" ]; then until_true 10 "the control groups are gone" remove_group "$GROUP"; fi
    # The network namespace may outlive its processes by minutes, with sockets that nobody closed, and the wire with it.
    ip link delete "$LINK" 2>/dev/null || true
    if [ -n "${KUN_KEEP:-}" ]; then keep_logs; fi
    rm -rf "$STATE"
    : >"$LOCK"
}

# What follows needs of a state that somebody has deleted: which process is the first one, and below which groups its own lie.
recover() {
    local pid
    pid="$(holder)"
    [ -n "$pid" ] || return 0
    (umask 077 && mkdir -p "$STATE")
    echo "$pid" >"$STATE/first.pid"
    groups_of "$pid" | sed "s|/$GROUP\$||" >"$STATE/groups"
}

# Of those that hold the lock the one that is the first in its namespace.
holder() {
    local process
    for process in /proc/[0-9]*; do
        if [ "$process/fd/9" -ef "$LOCK" ] && grep -qs $'^NSpid:.*\t1$' "$process/status"; then echo "${process#/proc/}"; fi
    done
}

# What is frozen cannot be killed.
thaw() {
    local node
    for node in $(seq "$MOST_NODES"); do set_freezer "$GROUP/node-$node" THAWED; done
}

# The kernel ends every process of the namespaces with their first one, and the first one last.
end_processes() {
    local pid
    pid="$(first_process)"
    [ -n "$pid" ] || return 0
    kill -KILL "$pid" 2>/dev/null || true
    until_true 30 "process $pid has ended" test ! -d "/proc/$pid"
}

# For who looks at a test that has failed.
keep_logs() {
    rm -rf "$STATE.kept"
    mkdir "$STATE.kept"
    cp -r "$STATE/parts" "$STATE/log" "$STATE.kept/" 2>/dev/null || true
    echo "logs are kept in $STATE.kept" >&2
}

# Whoever still held it has ended, or will not end.
take_lock() {
    make_lock "$LOCK"
    exec 9<>"$LOCK"
    flock --timeout 10 9 || {
        echo "down.sh: somebody starts cluster $CLUSTER right now" >&2
        exit 1
    }
}

main "$@"
