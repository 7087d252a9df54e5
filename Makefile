# Hapax's one entrance. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run build dist test simulate verify fix env deps compose-test compose-image advisories bench bench-wan bench-growth bench-load

# All clones share one target directory, so that each compiles the libraries only once.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hapax/target
# RocksDB is compiled once per machine by a script of its own, and linked by every build (`deps` makes it).
export ROCKSDB_LIB_DIR := $(shell scripts/rocksdb-static --where)
export ROCKSDB_STATIC := 1
# Where the tests find the shipped binary.
export HAPAX_BIN := $(CARGO_TARGET_DIR)/release/hapax

# One profile and one feature set for everything, so that no target compiles a library a second time.
# In CI the committed lock file is law.
CARGO_ARGS := --release --workspace $(if $(CI),--locked)
NEXTEST_ARGS := $(if $(CI),--profile ci)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

run: build ## install what is missing, build, start three nodes on loopback (ARGS="--data-dir DIR")
	@exec "$(HAPAX_BIN)" dev $(ARGS)

build: deps ## build the binary
	@cargo build $(CARGO_ARGS) --bins
	@echo "built $(HAPAX_BIN)"

dist: deps ## build the binary as it is shipped and measured: longer to build, faster
	@cargo build --profile dist --workspace $(if $(CI),--locked) --bins
	@echo "built $(CARGO_TARGET_DIR)/dist/hapax"

test: build ## every test but the compose test
	@scripts/install-deps test
	@if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run $(CARGO_ARGS) $(NEXTEST_ARGS); \
	else \
	  echo "cargo-nextest is not installed: running the same tests with cargo test, one at a time"; \
	  cargo test $(CARGO_ARGS) --lib --bins --tests -- --test-threads=1; \
	fi

simulate: deps ## simulate clusters from other seeds than those of make test (SEEDS=0..1000)
	@HAPAX_SIMULATION_SEEDS=$(or $(SEEDS),0..1000) cargo test $(CARGO_ARGS) --test simulation -- every_promise_is_kept --nocapture

# The compose test is its own target with `test = false`, so clippy's --all-targets does not see it.
verify: deps ## read-only checks: format, lints, the tree's own rules, dependencies
	@cargo fmt --all --check
	@cargo clippy $(CARGO_ARGS) --all-targets -- -D warnings
	@cargo clippy $(CARGO_ARGS) --test compose -- -D warnings
	@cargo test $(CARGO_ARGS) --quiet --test tidy
	@scripts/cargo-deny --locked check --hide-inclusion-graph bans licenses sources

fix: deps ## write what verify can correct: format and machine-applicable lints
	@cargo fmt --all
	@cargo clippy $(CARGO_ARGS) --all-targets --fix --allow-dirty --allow-staged
	@cargo fmt --all

env: ## print what a shell needs to call cargo itself: eval "$(make env)"
	@printf 'export %s=%q\n' CARGO_TARGET_DIR "$$CARGO_TARGET_DIR" ROCKSDB_LIB_DIR "$$ROCKSDB_LIB_DIR" \
	  ROCKSDB_STATIC 1 HAPAX_BIN "$$HAPAX_BIN"

deps: ## install system packages that the build needs (Debian or Ubuntu, as root or with sudo)
	@scripts/install-deps build
	@scripts/rocksdb-static >/dev/null

compose-image: build ## build the container image around the binary that `make build` made
	@scripts/install-deps compose
	@deploy/build-image

compose-test: compose-image ## start docker-compose.yml for real, stop a region, and look for every receipt
	@HAPAX_TARGET=prebuilt cargo test $(CARGO_ARGS) --test compose -- --nocapture --test-threads=1

advisories: ## ask the RustSec database about the dependencies (needs the network)
	@scripts/cargo-deny check advisories

# Not part of CI: they measure, and a shared machine measures its neighbours. They write into docs/benchmarks.md.
bench bench-wan bench-growth: export COMPARE_BIN = $(CARGO_TARGET_DIR)/bench/release/hapax-compare
bench bench-wan bench-growth: export HAPAX_BIN = $(CARGO_TARGET_DIR)/dist/hapax
bench: dist bench-load ## measure beside etcd and PostgreSQL (apt-get install etcd-server etcd-client postgresql)
	@scripts/bench-peers

bench-wan: dist bench-load ## measure with 10, 40 and 80 ms between the nodes
	@scripts/bench-wan

bench-growth: dist bench-load ## measure while the state grows to ten million operations; a restart, retention, a snapshot (RECORDS=…)
	@scripts/bench-growth

bench-load:
	@cargo build --release --locked --manifest-path bench/compare/Cargo.toml --target-dir "$(CARGO_TARGET_DIR)/bench"
