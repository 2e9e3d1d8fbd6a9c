# shellcheck shell=bash disable=SC2034 # They are for who sources it.
# Sourced by the scripts of the cluster: where its files are and which addresses it has. CLUSTER is its number, 0 to 15; each
# has 1/16 of 198.18.0.0/15, which is nobody's on the Internet, and a lock that is held as long as it runs.
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
. "$HERE/../places.sh"
. "$HERE/../locks.sh"
# Not in the cache, wherever that is: it may be deleted at any time.
STATES="${KUN_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/kun/clusters}"
CLUSTERS=16
# As many as have a network of pods.
MOST_NODES=7
RANGE=198.18.0.0/15

# The programs of a cluster are written in Go: with fewer collections of their garbage they take less of the machine, and more memory.
SPARE=400

# settle NUMBER: everything that follows from a cluster's number.
settle() {
    if ! [[ "$1" =~ ^[0-9]+$ ]] || [ "$1" -ge "$CLUSTERS" ]; then
        echo "CLUSTER is 0 to $((CLUSTERS - 1)), not $1" >&2
        exit 2
    fi
    export CLUSTER="$1"
    local first="198.$((18 + CLUSTER / 8))" third=$((32 * (CLUSTER % 8)))
    LOCK="/run/lock/kun-cluster-$CLUSTER"
    STATE="$STATES/$CLUSTER"
    LINK="kun-c$CLUSTER"
    GROUP="kun-c$CLUSTER"
    MACHINE_IP="$first.$third.1"
    CONTROL_IP="$first.$third.2"
    NODES_PREFIX="$first.$third"
    PODS_PREFIX="$first"
    PODS_THIRD=$((third + 8))
    PODS_RANGE="$first.$PODS_THIRD.0/21"
    SERVICES_RANGE="$first.$((third + 16)).0/20"
    API_SERVICE_IP="$first.$((third + 16)).1"
    DNS_SERVICE_IP="$first.$((third + 16)).10"
}

# read_state: where the state of a cluster is that was started with other settings; 1 if its lock names none. Everybody may write files
# where locks are, and the state is removed by root.
read_state() {
    [ -s "$LOCK" ] || return 1
    is_our_lock "$LOCK" || exit 1
    if [[ "$(cat "$LOCK")" != /*/"$CLUSTER" ]]; then
        echo "$LOCK does not say where a state is" >&2
        exit 1
    fi
    STATE="$(cat "$LOCK")"
}

# found: the same of a cluster that runs, wherever it has its state.
found() {
    settle "${CLUSTER:-0}"
    read_state || true
    if [ -z "$(first_process)" ]; then
        echo "cluster $CLUSTER does not run" >&2
        exit 1
    fi
    TOOLS="$(cat "$STATE/tools")"
    IMAGES="$(cat "$STATE/images")"
}

node_ip() { echo "$NODES_PREFIX.$((10 + $1))"; }
node_pods() { echo "$PODS_PREFIX.$((PODS_THIRD + $1)).0/24"; }

# claim NUMBER: takes the lock of a cluster, as file descriptor 9; whoever inherits it holds it, too. While there is anything
# of a cluster, the file says where its state is: for whoever comes after a crash.
claim() {
    settle "$1"
    make_lock "$LOCK" || return 1
    exec 9<>"$LOCK"
    flock --nonblock 9
}

# until_true SECONDS WHAT COMMAND...: asks ten times a second. On a slow machine (tests/hung) it waits longer, and so long on any that only
# what hangs is given up.
until_true() {
    local tries=$(($1 * 10 * 5 * ${KUN_STRETCH:-1})) what="$2"
    shift 2
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -le 0 ]; then
            echo "it took too long until $what" >&2
            return 1
        fi
        sleep 0.1
    done
}

# runs PID SCRIPT ARGUMENT...: whether that process is the script by now, of whatever checkout: its state is the machine's. Before bash
# comes the `env` of its first line, and while one gives way to the other the process has no command line.
runs() {
    local pid="$1" line
    shift
    line="$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")" || return 1
    [[ "$line" == "bash "*"/$* " ]]
}

# The first process of the cluster, as the machine counts; empty if it does not run. A number may have been given to another
# process since: it counts only if that one is ours.
first_process() {
    local pid
    pid="$(cat "$STATE/first.pid" 2>/dev/null)" || return 0
    if runs "$pid" inside/cluster.sh "$STATE"; then echo "$pid"; fi
}

# The same of a node.
node_process() {
    local pid
    pid="$(cat "$STATE/node-$1/first.pid" 2>/dev/null)" || return 0
    if runs "$pid" inside/node.sh "$STATE" "$1"; then echo "$pid"; fi
}
