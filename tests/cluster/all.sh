#!/usr/bin/env bash
# Everything of others that tests against a real Kubernetes use, made once. What cannot be made is said by whoever needs it.
set -uo pipefail
cd "$(dirname "$0")" || exit 0

command -v go >/dev/null 2>&1 || exit 0
. ../partial.sh

tools="$(./tools.sh </dev/null 2>/dev/null)"
images="$(./prepare.sh </dev/null 2>/dev/null | tail -n 1)"
if [ -d "$tools" ] && [ -d "$images" ]; then
    cache="$(cache_for "$(basename "$tools")")"
    keep_used "$cache" "$cache/$(basename "$tools")" "$cache/$(basename "$images")"
fi
exit 0
