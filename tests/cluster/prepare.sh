#!/usr/bin/env bash
# Everything a cluster with nodes needs, made once; prints the folder of the tools and the folder of the images.
set -euo pipefail
cd "$(dirname "$0")"

./check.sh
cache="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}"
mkdir -p "$cache"
# One at a time: who comes while another one makes them waits for them.
exec 9>"$cache/build.lock"
flock 9
../setup.sh node >&2
./build.sh
./images.sh
