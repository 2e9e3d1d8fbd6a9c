#!/usr/bin/env bash
# Builds the image of kun without a container engine -> target/image/kun-ARCH.tar, an OCI layout. For another kind of processor than
# this machine's it takes Debian's cross compiler. The program is linked without shared libraries, because agents run in images of Redis,
# of which some have another C library or an older one. It stays glibc's, as in every other build.
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

if [ "$machine" != "$here" ]; then
    tests/setup.sh "cross-$arch"
    export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$triple")_LINKER=$machine-linux-gnu-gcc" "CC_${triple//-/_}=$machine-linux-gnu-gcc"
fi
# With a target the flag is for what runs there, and not for macros, which the compiler loads.
export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$triple")_RUSTFLAGS=-C target-feature=+crt-static"
cargo build --locked --profile image -p kun --features jemalloc --target "$triple"
program="$target/$triple/image/kun"
if readelf --program-headers --wide "$program" | grep --quiet INTERP; then
    echo "build.sh: $program asks for a loader, which an image of Redis may not have" >&2
    exit 1
fi
image="$(MACHINE="$arch" tests/cluster/kun-image.sh "$program" "$tag")"
mkdir -p "$target/image"
cp "$image" "$target/image/kun-$arch.tar"
du -h --apparent-size "$program" "$target/image/kun-$arch.tar"
# Every Redis pod holds it: 30 MiB unpacked is what it may take.
if [ "$(stat -c %s "$target/image/kun-$arch.tar")" -gt $((30 << 20)) ]; then
    echo "build.sh: the image for $arch is larger than 30 MiB" >&2
    exit 1
fi
