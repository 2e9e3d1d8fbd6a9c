# shellcheck shell=bash
# Sourced by whoever ends in its EXIT trap what it has started. Of a signal that comes twice, as where a Ctrl-C is also passed on, or somebody is
# impatient, the second one would end the trap before that is done.

end_once() {
    local number
    # shellcheck disable=SC2064 # The number is meant.
    for number in 1 2 15; do trap "trap '' HUP INT TERM; exit $((128 + number))" "$number"; done
}
