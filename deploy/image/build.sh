#!/usr/bin/env bash
# Builds the image of kun without a container engine -> target/image/kun-ARCH.tar, an OCI layout. For another kind of processor than
# this machine's it takes Debian's cross compiler and the libraries that come with it.
# usage: [TAG=…] build.sh [amd64|arm64]
set -euo pipefail
cd "$(dirname "$0")/../.."
target="${CARGO_TARGET_DIR:-target}" here="$(uname -m)"

arch="${1:-}"
case "${arch:-$here}" in
amd64 | x86_64) arch=amd64 machine=x86_64 ;;
arm64 | aarch64) arch=arm64 machine=aarch64 ;;
*)
    echo "build.sh: '${arch:-$here}' is neither amd64 nor arm64" >&2
    exit 2
    ;;
esac
# Kernels of arm64 have pages of up to 64 KiB, and an allocator built for smaller ones does not run there.
if [ "$arch" = arm64 ]; then export JEMALLOC_SYS_WITH_LG_PAGE=16; fi
tag="${TAG:-$(git describe --always)}" triple="$machine-unknown-linux-gnu"

if [ "$machine" = "$here" ]; then
    cargo build --locked --profile image -p kun --features jemalloc
    program="$target/image/kun"
    image="$(tests/cluster/kun-image.sh "$program" "$tag")"
else
    tests/setup.sh "cross-$arch"
    export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$triple")_LINKER=$machine-linux-gnu-gcc" "CC_${triple//-/_}=$machine-linux-gnu-gcc"
    cargo build --locked --profile image -p kun --features jemalloc --target "$triple"
    program="$target/$triple/image/kun"
    image="$(ROOT="/usr/$machine-linux-gnu" MACHINE="$arch" tests/cluster/kun-image.sh "$program" "$tag")"
fi
mkdir -p "$target/image"
cp "$image" "$target/image/kun-$arch.tar"
du -h --apparent-size "$program" "$target/image/kun-$arch.tar"
# Every Redis pod holds it: 30 MiB unpacked is what it may take.
if [ "$(stat -c %s "$target/image/kun-$arch.tar")" -gt $((30 << 20)) ]; then
    echo "build.sh: the image for $arch is larger than 30 MiB" >&2
    exit 1
fi
