#!/usr/bin/env bash
# Builds every test and every program, once, with the lints of clippy and rustdoc on our own code: `make lint` and `make test` share
# it. Others' code comes from the cache if it is there, and goes into it if not. target/test/build.json holds cargo's messages.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lint/settings.sh

mkdir -p target/test
# Without the cache it only takes longer: the phase does not fail, which would end the run (phase.sh).
tests/phase.sh "take others' code from the cache" bash -c \
    "tests/cache.sh restore debug || echo \"the cache cannot be read; others' code is compiled anew\" >&2"
tests/phase.sh "fetch" cargo fetch --quiet --locked --target "$(rustc -vV | sed -n "s/^host: //p")"
# The programs come along, as tests of their packages start them. The messages of a build that failed or was killed are nobody's.
messages="$(mktemp target/test/build.json.XXXXXX)"
trap 'rm -f "$messages"' EXIT
tests/phase.sh "build and lint (dev)" "${BUILD_TESTS[@]}" --locked >"$messages"
chmod 644 "$messages"
mv "$messages" target/test/build.json
tests/phase.sh "put others' code into the cache" bash -c \
    "tests/cache.sh save debug || echo \"the cache cannot be written; the next checkout compiles others' code anew\" >&2"
