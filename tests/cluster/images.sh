#!/usr/bin/env bash
# Makes the images of a cluster's nodes once, without a container engine, and prints the folder that holds them: what holds a pod,
# and every engine that is tested, from the Debian suite that has it. Their names begin with kun.test/, which is nowhere.
set -euo pipefail
cd "$(dirname "$0")"
. ./go.sh
. ../partial.sh

# Image, suite, and how its programs are called.
ENGINES="redis:7.0=bookworm=redis redis:8.0=trixie=redis valkey:8.1=trixie=valkey valkey:9=forky=valkey"
# What scripts in a container may call.
APPLETS="cat chmod cp date df echo env false grep head hostname id ip kill ln ls mkdir mv nc nslookup ping ps rm sed sh sleep
    tail test timeout touch true wget"

main() {
    local hash
    hash="$(cat images.sh go.sh suite.sh image/*.go pause/*.go | sha256sum | cut -c1-16)"
    linked "images-$hash" && return
    cache="$(cache_for "images-$hash")"
    out="$cache/images-$hash"
    if ! is_whole "$out"; then take_turn "$cache/build.lock"; fi
    if ! is_whole "$out"; then make_all; fi
    link_here "$out"
}

make_all() {
    if ! command -v go >/dev/null 2>&1; then
        echo "missing: go, $(grep '^go ' go.mod | cut -d' ' -f2) or newer. See https://go.dev/doc/install" >&2
        exit 1
    fi
    echo "making images (a minute, once) in $out" >&2
    begin_partial "$cache"
    work="$partial/work"
    mkdir "$work" "$partial/tmp"
    # What is downloaded, and Go's own folders, go with it.
    export TMPDIR="$partial/tmp"
    build_go -ldflags "-s -w" -o "$work/" ./image ./pause
    image pause:1 -root "$work" -bin /pause -account pause:65535 -- /pause
    local engine name suite program
    for engine in $ENGINES; do
        IFS='=' read -r name suite program <<<"$engine"
        engine_image
    done
    # For the image of kun (kun-image.sh).
    mv "$work/image" "$partial/image"
    rm -rf "$work" "$partial/tmp"
    finish_partial "$out"
}

# image NAME ARGUMENT...
image() {
    local name="$1"
    shift
    "$work/image" -out "$partial/${name/:/-}.tar" -name "kun.test/$name" "$@"
}

# As the official images have it: programs in /usr/local/bin, data in /data, user 999; there is no script to enter by. The
# library is one that threads load when they are ended.
engine_image() {
    local applet links=() programs
    if [ ! -d "$work/$suite" ]; then
        mapfile -t programs < <(programs_of "$suite")
        ./suite.sh "$suite" "$work/$suite" busybox-static "${programs[@]}"
    fi
    for applet in $APPLETS; do links+=(-link "/usr/bin/$applet=busybox"); done
    image "$name" -root "$work/$suite" \
        -bin "/usr/bin/$program-server=/usr/local/bin/$program-server" -bin "/usr/bin/$program-cli=/usr/local/bin/$program-cli" \
        -bin "/bin/busybox" "${links[@]}" -library libgcc_s.so.1 \
        -account "$program:999" -dir /data=1777 -workdir /data -cmd "$program-server"
}

# The packages of all engines of a suite.
programs_of() {
    tr ' ' '\n' <<<"$ENGINES" | awk -F= -v suite="$1" '$2 == suite { print $3 "-server"; print $3 "-tools" }'
}

main
