# shellcheck shell=bash disable=SC2034 # It is for who sources it.
# Sourced, in the workspace's folder, by whatever builds tests: with the same lints and of the same packages, or one of them would build
# once more what another one has built.
export RUSTC_WORKSPACE_WRAPPER="$PWD/tests/lint/rustc.sh" CLIPPY_ARGS="-Dwarnings__CLIPPY_HACKERY__"

# What follows says which tests. Whatever is built is built of the whole workspace, with its tests: of some packages only, or without
# what tests need, others' libraries would be built once more, with other features.
BUILD_TESTS=(cargo test --quiet --workspace --no-run --message-format=json-render-diagnostics)
