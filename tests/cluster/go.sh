# shellcheck shell=bash
# Sourced by whatever builds Go programs: without cgo, or everything would be compiled a second time and linked with this machine's
# libc; without what a debugger wants, and with fewer collections of the compiler's garbage (together a third less work).
export CGO_ENABLED=0 GOGC="${GOGC:-400}" GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath -gcflags=all=-dwarf=false"
# KUN_JOBS: how many packages at once.
build_go() { go build -p "${KUN_JOBS:-$(nproc)}" "$@"; }
