#!/usr/bin/env bash
# Builds every test and every program, once, with the lints of clippy and rustdoc on our own code: `make lint` and `make test` share
# it. Others' code comes from the cache if it is there, and goes into it if not. target/test/build.json holds cargo's messages.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lint/settings.sh
. tests/signals.sh

# What runs, and all that it starts, is one group: it ends with this script. Who is signalled alone, as by make, would leave cargo behind,
# with the target folder locked.
running=""
phase() {
    local status=0
    set -m
    tests/phase.sh "$@" </dev/null &
    running=$!
    set +m
    wait "$running" || status=$?
    running=""
    return "$status"
}
end() {
    [ -z "$running" ] || kill -- "-$running" 2>/dev/null || true
    rm -f "${messages:-}"
}
trap end EXIT
end_once

mkdir -p target/test
# Without the cache it only takes longer: the phase does not fail, which would end the run (phase.sh).
phase "take others' code from the cache" bash -c \
    "tests/cache.sh restore debug || echo \"the cache cannot be read; others' code is compiled anew\" >&2"
phase "fetch" cargo fetch --quiet --locked --target "$(rustc -vV | sed -n "s/^host: //p")"
# The programs come along, as tests of their packages start them. The messages of a build that failed or was killed are nobody's.
messages="$(mktemp target/test/build.json.XXXXXX)"
phase "build and lint (dev)" "${BUILD_TESTS[@]}" --locked >"$messages"
chmod 644 "$messages"
mv "$messages" target/test/build.json
phase "put others' code into the cache" bash -c \
    "tests/cache.sh save debug || echo \"the cache cannot be written; the next checkout compiles others' code anew\" >&2"
