#!/usr/bin/env bash
# A cluster that lives as long as somebody holds this script's standard input open: for tests, whose runner may be killed.
# Prints what up.sh prints, then "ready"; ends the cluster when the input ends.
# usage: keep.sh [NODES]
set -euo pipefail
cd "$(dirname "$0")"

# The cluster's first process holds the lease, too, and ends without us.
exec 7<&0
told="$(CLUSTER=any LEASE=7 ./up.sh "${1:-1}")"
eval "$told"
echo "$told"
echo ready
cat <&7 >/dev/null
./down.sh
