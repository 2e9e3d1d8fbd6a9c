# shellcheck shell=bash
# Sourced by the first processes of the namespaces: programs that are kept running (part.sh).

# keep_running PART COMMAND...: ended, it is started again, unless it is held. STATE/parts has its log, its process id while it
# runs, and what holds it.
keep_running() {
    local part="$STATE/parts/$1"
    shift
    mkdir -p "$(dirname "$part")"
    touch "$part.log"
    while :; do
        if [ ! -e "$part.held" ]; then
            "$@" >>"$part.log" 2>&1 </dev/null &
            echo $! >"$part.pid"
            wait $! || true
            rm -f "$part.pid"
            echo "--- ended; $(date --rfc-3339=seconds)" >>"$part.log"
        fi
        sleep 0.3
    done &
}

# Until the end: the first process of a namespace is also the parent of what is orphaned there.
reap() {
    while kill -0 "$1" 2>/dev/null; do wait -n || true; done
}
