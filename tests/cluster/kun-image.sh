#!/usr/bin/env bash
# Makes the image kun.test/kun:TAG of a kun program and prints its file. It runs as user 65532, with this machine's libraries, or
# with those below ROOT for another MACHINE (amd64, arm64).
# usage: [ROOT=… MACHINE=…] kun-image.sh PROGRAM [TAG]
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
    options=()
    if [ -n "${ROOT:-}" ]; then
        # Who built it for another machine has stripped it, too.
        cp -rL "$ROOT/lib" "$work/lib"
        cp "$program" "$work/kun"
        options=(-root "$work" -machine "$MACHINE" -bin /kun=/usr/local/bin/kun)
    else
        strip -o "$work/kun" "$program"
        options=(-bin "$work/kun=/usr/local/bin/kun")
    fi
    "$images/image" -out "$out" -name "kun.test/kun:$tag" "${options[@]}" -library libgcc_s.so.1 \
        -account kun:65532 -dir /data=1777 -- /usr/local/bin/kun
fi
touch "$out"
find "$folder" -name 'kun-*.tar' -printf '%T@ %p\n' | sort -rn | tail -n "+$((KEPT + 1))" | cut -d' ' -f2- | xargs -r rm -f
echo "$out"
