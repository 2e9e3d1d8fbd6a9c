#!/usr/bin/env bash
# As build.sh, one at a time: who comes while another one builds waits for its files instead of building them again.
set -euo pipefail
cd "$(dirname "$0")"

cache="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}"
mkdir -p "$cache"
if command -v flock >/dev/null 2>&1; then
    exec 9>"$cache/build.lock"
    flock 9
fi
exec ./build.sh
