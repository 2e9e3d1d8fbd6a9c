#!/usr/bin/env bash
# Makes the image kun.test/kun:TAG of a kun program and prints its file: the program alone, as user 65532. It needs no library of any
# image; one that does, as cargo makes it for tests, is linked anew. MACHINE (amd64, arm64): what it was built for.
# usage: [MACHINE=…] kun-image.sh PROGRAM [TAG]
set -euo pipefail
program="$(realpath "$1")" tag="${2:-test}"
cd "$(dirname "$0")"
. ../partial.sh

# Images kept: another build of kun makes another one.
KEPT=4

images="$(./prepare.sh | tail -n 1)"
folder="$(cache_for kun-images)/kun-images"
hash="$( (cat "$program" && cat kun-image.sh kun-static.sh image/*.go && echo "$tag") | sha256sum | cut -c1-16)"
out="$folder/kun-$hash.tar"

if [ ! -e "$out" ]; then
    begin_partial "$folder"
    work="$partial"
    if readelf --program-headers --wide "$program" | grep --quiet INTERP; then
        ./kun-static.sh "$program" "$work/linked"
        program="$work/linked"
    fi
    options=()
    if [ -n "${MACHINE:-}" ]; then
        # Who built it for another machine has stripped it, too.
        cp "$program" "$work/kun"
        options=(-machine "$MACHINE")
    else
        strip -o "$work/kun" "$program"
    fi
    "$images/image" -out "$work/image.tar" -name "kun.test/kun:$tag" -root "$work" "${options[@]}" -bin /kun=/usr/local/bin/kun \
        -account kun:65532 -dir /data=1777 -- /usr/local/bin/kun
    sync "$work/image.tar"
    mv -T "$work/image.tar" "$out"
fi
touch "$out"
# Others make theirs in folders beside it, and may throw one away at this moment.
{ find "$folder" -maxdepth 1 -name 'kun-*.tar' -printf '%T@ %p\n' 2>/dev/null || true; } |
    sort -rn | tail -n "+$((KEPT + 1))" | cut -d' ' -f2- | xargs -r rm -f
echo "$out"
