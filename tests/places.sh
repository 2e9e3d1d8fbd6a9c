# shellcheck shell=bash
# Sourced by whatever has files outside the checkout: every script finds them, whatever folder it works in.

# Go and cargo ask for it, too.
HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6 || true)}"
export HOME
for place in HOME KUN_CACHE KUN_STATE XDG_CACHE_HOME XDG_STATE_HOME; do
    if [ "$place" != HOME ] && [ -z "${!place:-}" ]; then continue; fi
    if [[ "${!place}" != /* ]]; then
        echo "$place names a folder from the root on, not ${!place@Q}" >&2
        exit 2
    fi
done
unset place
