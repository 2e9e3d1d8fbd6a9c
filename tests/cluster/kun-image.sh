#!/usr/bin/env bash
# Makes the image kun.test/kun:TAG of a kun program and prints its file. It runs as user 65532, with this machine's libraries.
# usage: kun-image.sh PROGRAM [TAG]
set -euo pipefail
program="$(realpath "$1")" tag="${2:-test}"
cd "$(dirname "$0")"

# Images kept: another build of kun makes another one.
KEPT=4

images="$(./prepare.sh | tail -n 1)"
folder="${KUN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kun}/kun-images"
hash="$( (cat "$program" && cat kun-image.sh image/*.go && echo "$tag") | sha256sum | cut -c1-16)"
out="$folder/kun-$hash.tar"
mkdir -p "$folder"

if [ ! -e "$out" ]; then
    work="$(mktemp -d)"
    trap 'rm -rf "$work"' EXIT
    strip -o "$work/kun" "$program"
    "$images/image" -out "$out" -name "kun.test/kun:$tag" -bin "$work/kun=/usr/local/bin/kun" -library libgcc_s.so.1 \
        -account kun:65532 -dir /data=1777 -- /usr/local/bin/kun
fi
touch "$out"
find "$folder" -name 'kun-*.tar' -printf '%T@ %p\n' | sort -rn | tail -n "+$((KEPT + 1))" | cut -d' ' -f2- | xargs -r rm -f
echo "$out"
