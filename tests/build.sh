#!/usr/bin/env bash
# Builds every test and every program, once, with the lints of clippy and rustdoc on our own code: `make lint` and `make test` share
# it. Others' code comes from the cache if it is there, and goes into it if not. target/test/build.json holds cargo's messages.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p target/test
# Without the cache it only takes longer.
tests/phase.sh "take others' code from the cache" tests/cache.sh restore debug ||
    echo "the cache cannot be read; others' code is compiled anew" >&2
tests/phase.sh "fetch" cargo fetch --quiet --locked --target "$(rustc -vV | sed -n "s/^host: //p")"
export RUSTC_WORKSPACE_WRAPPER="$PWD/tests/lint/rustc.sh" CLIPPY_ARGS="-Dwarnings__CLIPPY_HACKERY__"
# Whatever is built is built of the whole workspace, with its tests: of some packages only, or without what tests need, others'
# libraries would be built once more, with other features. The programs come along, as tests of their packages start them.
tests/phase.sh "build and lint (dev)" \
    cargo test --quiet --locked --workspace --no-run --message-format=json-render-diagnostics >target/test/build.json
tests/phase.sh "put others' code into the cache" tests/cache.sh save debug ||
    echo "the cache cannot be written; the next checkout compiles others' code anew" >&2
