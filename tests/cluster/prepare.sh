#!/usr/bin/env bash
# Everything a cluster with nodes needs, made once; prints the folder of the tools and the folder of the images.
set -euo pipefail
cd "$(dirname "$0")"

./check.sh
../setup.sh node >&2
./build.sh
./images.sh
