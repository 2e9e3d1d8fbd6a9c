#!/usr/bin/env bash
# Runs a command and writes down how many seconds it took, for the table at the end of `make test`. A run ends with the first phase that
# fails or is interrupted: what was written down before goes with it, and is not in the table of the next run.
# usage: phase.sh NAME COMMAND [ARGUMENT...]
set -euo pipefail

name="$1"
shift
mkdir -p target/test
trap 'rm -f target/test/phases' EXIT
begin="$(date +%s%N)"
"$@"
tenths=$((($(date +%s%N) - begin) / 100000000))
printf '%s %d.%d\n' "$name" $((tenths / 10)) $((tenths % 10)) >>target/test/phases
trap - EXIT
