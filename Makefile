# Entry point: `make serve` runs the receiver, `make test` runs the checks and tests. Both set up what they need.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := $(VENV)/tools/bin
PIP := $(BIN)/pip --disable-pip-version-check
CARGO := cargo --locked
# Compiled files of Python are kept: without them each process of the tests compiles every module again.
export PYTHONDONTWRITEBYTECODE :=
# The directories of quick tests are in memory if 4 GB are free there: a sync of a disk takes longer than most tests.
IN_MEMORY := $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 { print "-p /dev/shm" }')
# Three processes for two cores, because many tests wait.
PYTEST_ALL := $(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder --durations 20
IN_PROCESS_TESTS := $(filter-out tests/crash tests/doubles tests/e2e tests/faults tests/support tests/tidy tests/torture,$(patsubst %/,%,$(wildcard tests/*/))) $(wildcard tests/test_*.py)
COVERAGE_MIN := 91
# CPU seconds that a test of `make test` may take. Not less: background threads of the engine count, too.
CPU_S_MAX ?= 15
MANIFEST := --manifest-path transcode/Cargo.toml
CORE_SOURCES := $(shell find transcode/src schemas -type f) transcode/Cargo.toml transcode/Cargo.lock pyproject.toml testing/pyproject.toml

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: serve
serve: setup ## run the receiver with the embedded store on 127.0.0.1 (ARGS="--listen ...")
	@exec $(BIN)/trace-drain serve $(ARGS)

.PHONY: demo
demo: setup ## emulated platform, receiver and a web shop that sends traces, with a tour of the pages (ARGS="--requests-per-s 5")
	@exec $(BIN)/python -m trace_drain_testing.shop.shop_demo $(ARGS)

.PHONY: setup
setup: $(VENV)/.core ## .venv with locked dependencies and the release build of the Rust core

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "python3 is missing: install Python 3.11 or newer (apt-get install python3 python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: set PYTHON=/path/to/python3.11 or install Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "the venv module is missing: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.serve: requirements/serve.lock requirements/build.lock | $(BIN)/python
	@echo "installing locked dependencies"
	$(PIP) install --require-hashes --no-deps -r requirements/build.lock
	$(PIP) install --require-hashes --no-deps -r requirements/serve.lock
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.serve
	@echo "installing locked development dependencies"
	$(PIP) install --require-hashes --no-deps -r requirements/dev.lock
	@touch $@

$(VENV)/.core: $(VENV)/.serve $(CORE_SOURCES)
	@command -v cargo >/dev/null || echo "cargo is missing: the build backend tries to fetch a Rust toolchain (or get it from https://rustup.rs)"
	@echo "building the Rust core (release); takes some minutes the first time"
	PATH="$$PWD/$(BIN):$$PATH" $(PIP) install --verbose --no-build-isolation --no-deps --editable . --editable testing # verbose: shows what cargo compiles
	@touch $@

.PHONY: check
check: setup $(VENV)/.dev check-cargo ## formatting, ruff, mypy, import contracts, clippy, stubtest, tidy tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/typos
	$(BIN)/mypy receiver testing tests benchmarks
	$(BIN)/python -m mypy.stubtest receiver._transcode --ignore-disjoint-bases
	$(BIN)/lint-imports
	$(CARGO) fmt $(MANIFEST) --check
	$(CARGO) clippy $(MANIFEST) --all-targets --features python -- -D warnings
	$(CARGO) fmt --manifest-path benchmarks/sink/Cargo.toml --check
	$(CARGO) clippy --manifest-path benchmarks/sink/Cargo.toml -- -D warnings
	$(BIN)/pytest -q tests/tidy

.PHONY: check-cargo
check-cargo:
	@command -v cargo >/dev/null || { echo "cargo is missing: development needs a Rust toolchain with clippy and rustfmt (https://rustup.rs)"; exit 1; }

.PHONY: test
test: check ## every check (with tests/tidy), every test in one process, a test of whole processes for each promise
	$(CARGO) test $(MANIFEST) --quiet
	$(BIN)/python benchmarks/core_instructions.py
	directory=$$(mktemp -d $(IN_MEMORY)); trap "rm -rf $$directory" EXIT; TMPDIR=$$directory $(PYTEST_ALL) --tier test -p tests.support.cpu_limit --cpu-s-max $(CPU_S_MAX) --ignore tests/tidy tests

.PHONY: test-faults
test-faults: setup $(VENV)/.dev ## the other tests: faults, kills, conformance and torture of whole processes; CI runs both
	RANDOM_CASES=200 $(PYTEST_ALL) --tier faults tests

.PHONY: audit
audit: $(VENV)/.tools check-cargo ## known vulnerabilities, licences and sources of all locked dependencies (needs cargo-deny)
	@command -v cargo-deny >/dev/null || { echo "cargo-deny is missing: cargo install cargo-deny"; exit 1; }
	for lock in serve build dev; do $(TOOLS)/pip-audit --require-hashes --disable-pip --requirement requirements/$$lock.lock; done
	cargo deny $(MANIFEST) check

.PHONY: site
site: $(VENV)/.tools ## write the documentation site to site/
	NO_MKDOCS_2_WARNING=1 $(TOOLS)/mkdocs build --strict --quiet

$(VENV)/.tools: requirements/tools.lock | $(BIN)/python
	@echo "installing locked tools"
	$(PYTHON) -m venv $(VENV)/tools
	$(TOOLS)/pip --disable-pip-version-check --quiet install --require-hashes --no-deps -r requirements/tools.lock
	@touch $@

.PHONY: quick
quick: setup $(VENV)/.dev ## before each commit: static checks of Python and the fast tests, under 90 s
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/typos
	$(BIN)/mypy receiver testing tests benchmarks
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n 2 --dist loadfile tests/tidy tests/durable tests/journal tests/testing/load tests/config tests/redelivery tests/test_*.py

.PHONY: coverage
coverage: setup $(VENV)/.dev ## line coverage of the tests that run in one process; fails below the floor
	$(BIN)/pytest -q -n 2 --dist loadfile --cov=receiver --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_MIN) $(IN_PROCESS_TESTS)

.PHONY: test-clickhouse
test-clickhouse: setup $(VENV)/.dev ## store contract and faults against a real server (TRACE_DRAIN_TEST_CLICKHOUSE=URL)
	@test -n "$$TRACE_DRAIN_TEST_CLICKHOUSE" || { echo "set TRACE_DRAIN_TEST_CLICKHOUSE=http://user:password@host:8123/database"; exit 1; }
	$(BIN)/pytest -q tests/engine/test_store_contract.py tests/engine/test_schema.py tests/deploy/test_roles.py tests/writer/test_engines.py tests/move tests/faults/test_answers.py tests/faults/test_sequences.py tests/faults/test_tables.py tests/console/rollup

.PHONY: test-cluster
test-cluster: setup $(VENV)/.dev ## the store of a cluster against real servers (.github/cluster/compose.yaml)
	TRACE_DRAIN_TEST_CLUSTER=$(or $(TRACE_DRAIN_TEST_CLUSTER),http://test:test@127.0.0.1:8123/default) $(BIN)/pytest -q tests/engine/test_real_cluster.py

.PHONY: fix
fix: $(VENV)/.dev ## apply the automatic fixes of the formatters and linters
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(CARGO) fmt $(MANIFEST)

.PHONY: docs
docs: $(VENV)/.core ## write the pages and lists of docs/ that are derived from the source
	PYTHONPATH=. $(BIN)/python docs/generate.py

CHART := deploy/helm/trace-drain-receiver
HELM_TEMPLATE := helm template trace-drain $(CHART) --namespace trace-drain --kube-version 1.30
.PHONY: renders
renders: ## write deploy/kustomize/base and the renders of the tests from the chart; needs helm
	$(HELM_TEMPLATE) --values $(CHART)/ci/server-values.yaml > deploy/kustomize/base/trace-drain.yaml
	for name in embedded everything; do $(HELM_TEMPLATE) --values $(CHART)/ci/$$name-values.yaml > tests/deploy/renders/$$name.yaml; done

.PHONY: reliability
reliability: docs ## as `make docs`: docs/reliability.md is written from the tests and docs/results

.PHONY: faults
faults: setup $(VENV)/.dev ## every fault case at full length, and record the results (CASES=… OUTAGE=600; TRACE_DRAIN_TEST_CLICKHOUSE=URL)
	TRACE_DRAIN_TEST_FAULTS=1 TRACE_DRAIN_TEST_OUTAGE_S=$(or $(OUTAGE),600) TRACE_DRAIN_TEST_POWER_SEEDS=200 $(BIN)/pytest -q -m fault -p tests.support.fault_record --faults-json docs/results/faults.json $(or $(CASES),tests)

.PHONY: torture
torture: setup $(VENV)/.dev ## kill, freeze and restart the receiver under load, then verify the stored spans (DURATION=30m SEED=7 KILLS=1000)
	PYTHONPATH=. $(BIN)/python -m tests.torture --duration $(or $(DURATION),30m) --json $(or $(JSON),docs/results/torture.json) $(if $(SEED),--seed $(SEED)) $(if $(KILLS),--kills $(KILLS)) $(ARGS)

.PHONY: bench-core
bench-core: ## speed of the Rust core alone: spans/s per body kind, one core
	$(CARGO) run $(MANIFEST) --release --quiet --example bench_core

.PHONY: check-speed
check-speed: $(BIN)/python ## instructions per span of the core against benchmarks/core_instructions.json; at most 10 % more
	$(BIN)/python benchmarks/core_instructions.py

.PHONY: speed-record
speed-record: $(BIN)/python ## update benchmarks/core_instructions.json
	$(BIN)/python benchmarks/core_instructions.py --write

.PHONY: bench
bench: setup $(VENV)/.dev ## compare this receiver with others; takes an hour (ARGS="--only ours --runs 1 --duration 5")
	PYTHONPATH=. $(BIN)/python -m benchmarks $(ARGS)

.PHONY: bench-store
bench-store: setup $(VENV)/.dev ## compare our table with the exporter's: inserts, bytes, queries (ARGS="--spans 10000000,50000000" or "--sustain 30m")
	PYTHONPATH=. $(BIN)/python -m benchmarks.store $(ARGS)

.PHONY: bench-query
bench-query: setup $(VENV)/.dev ## every question on our table and the exporter's, and ingest beside queries; takes hours (ARGS="--spans 1000000 --projects 20 --questions trace,search" or "--part ingest")
	PYTHONPATH=. $(BIN)/python -m benchmarks.query $(ARGS)

.PHONY: bench-ui
bench-ui: setup $(VENV)/.dev ## time until a waterfall is drawn, frames while it scrolls, time of each page; needs chromium (ARGS="--spans 1000 --runs 3")
	PYTHONPATH=. $(BIN)/python -m benchmarks.ui $(ARGS)

.PHONY: gallery
gallery: setup $(VENV)/.dev ## write the screenshots of docs/gallery.md and docs/tour.md; needs chromium
	PYTHONPATH=. $(BIN)/python -m benchmarks.ui.gallery $(ARGS)

.PHONY: bench-long
bench-long: setup ## long runs: growth in half an hour, a backlog of 10 GB (ARGS="--part backlog --gb 2")
	PYTHONPATH=. $(BIN)/python -m benchmarks.long $(ARGS)

.PHONY: fuzz
fuzz: $(BIN)/python ## fuzz unpack, protobuf and JSON until docs/results/fuzz.json records the CPU hours (HOURS=1); continues after an interruption
	$(BIN)/python transcode/fuzz/seed.py
	$(BIN)/python transcode/fuzz/run.py --hours $(or $(HOURS),1)

.PHONY: lock
lock: $(VENV)/.serve ## update the lock files
	$(PIP) install pip-tools
	for name in build serve dev tools; do $(MAKE) --no-print-directory requirements/$$name.lock.new; done

requirements/%.lock.new:
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate --no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(if $(filter serve,$*),--extra embedded pyproject.toml,requirements/$*.in) --output-file requirements/$*.lock

.PHONY: clean
clean: ## remove everything built and installed (data stays)
	rm -rf $(VENV) benchmarks/.peers benchmarks/.last benchmarks/sink/target transcode/target receiver/_transcode*.so
