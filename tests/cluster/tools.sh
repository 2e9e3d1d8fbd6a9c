#!/usr/bin/env bash
# The programs of others that tests call, without what nodes need: the folder that holds them.
set -euo pipefail
exec "$(dirname "$0")/build.sh"
