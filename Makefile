# What a person types. Every target installs what it needs (see tests/setup.sh) or says exactly what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.PHONY: help demo test quick bench lint soak build setup cluster-up cluster-down cluster-install differential image

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

setup: ## redis-server and kubectl
	@tests/setup.sh redis kubectl

# Whatever is built is built of the whole workspace: of some packages only, others' libraries would be built once more, with other features.
build: ## the kun binary, debug
	cargo build --quiet --workspace --bin kun

demo: setup ## the whole story, on this machine, against real redis-server
	cargo build --quiet --workspace --bin kun --bin demo
	@$${CARGO_TARGET_DIR:-target}/debug/demo

test: ## every test, with a table of where the time went; NOISE=1: on a machine that stands still now and then; TESTS="plan system": some suites
	@tests/run.sh $(TESTS)

quick: ## unit and property tests of the crates that changed, and of those that lean on them; BASE=main: since then
	@tests/quick.sh

cluster-up: ## a real Kubernetes in namespaces of this machine; NODES=3
	@tests/cluster/up.sh $${NODES:-1}

cluster-down: ## ends it, and leaves nothing
	@tests/cluster/down.sh

cluster-install: build ## KUN into the cluster of cluster-up, and a RedisCluster
	@tests/cluster/install.sh "$${CARGO_TARGET_DIR:-target}/debug/kun"

image: ## the image -> target/image/kun-ARCH.tar; ARCH=arm64 or amd64, this machine's if nothing is said; any container engine loads it
	@deploy/image/build.sh $(ARCH)

bench: setup ## side by side with redis-cli and friends -> target/bench/results.jsonl; BENCH="--only api --quick"
	cargo build --release --quiet --workspace --bin kun --bin bench --features kun/jemalloc,bench/jemalloc
	$${CARGO_TARGET_DIR:-target}/release/bench $(BENCH)

differential: ## every request of the corpus to kube-apiserver and to ours; DIFFERENTIAL="--only create"
	cargo build --quiet --workspace --bin kun --bin differential
	tools="$$(tests/cluster/tools.sh)" && $${CARGO_TARGET_DIR:-target}/debug/differential --tools "$$tools" $(DIFFERENTIAL)

soak: ## the long campaigns, seeded; SOAK=20: so many times their usual size
	@tests/soak.sh $(TESTS)

lint: ## fmt, cargo-deny, and a build with the lints of clippy and rustdoc, which `make test` goes on with
	@rm -f target/test/phases
	cargo fmt --all --check
	@tests/phase.sh "cargo-deny" tests/deny.sh
	@tests/build.sh
