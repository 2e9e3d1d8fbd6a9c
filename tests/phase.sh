#!/usr/bin/env bash
# Runs a command and writes down how many seconds it took, for the table at the end of `make test`.
# usage: phase.sh NAME COMMAND [ARGUMENT...]
set -euo pipefail

name="$1"
shift
begin="$(date +%s%N)"
status=0
"$@" || status=$?
tenths=$((($(date +%s%N) - begin) / 100000000))
mkdir -p target/test
printf '%s %d.%d\n' "$name" $((tenths / 10)) $((tenths % 10)) >>target/test/phases
exit "$status"
