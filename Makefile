# Holdfast: every task by one name. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
ARGS ?=
PYTEST_ARGS ?=
# One more than two cores, which fills them to nine tenths; those marked `alone` measure
# time and run afterwards, one by one.
WORKERS ?= 3
ALONE = $(shell grep -rl --include='*.py' 'mark\.alone' tests)
CODE := src tests $(wildcard benchmarks examples)

.PHONY: help setup setup-test setup-soak web run test test-lowest check lint types layers format soak bench lock clean

help: ## list the targets
	@echo "usage: make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.venv: ; @scripts/setup-python run

setup: ## make .venv with locked packages and install the engines this machine allows
	@scripts/setup-python run
	@scripts/setup-engines

setup-test: ## the same with everything the tests need; as root, missing engines are an error
	@scripts/side-by-side "scripts/setup-python test; scripts/setup-pythons" "scripts/setup-python kinds" \
	    "scripts/setup-node; scripts/build-web --tests" "scripts/setup-engines --tests"
	@scripts/setup-engines --tests # leaves word in .venv, which was perhaps not there before

web: ## build the dashboard into the package; needs Node 20, and without it the plain pages stay
	@scripts/build-web

run: setup web ## set up and start the server: make run ARGS="--port 9000"
	@exec $(BIN)/holdfast serve $(ARGS)

test: setup-test check ## set up, then lint, types, layers and all tests
	$(BIN)/python -m pytest -n $(WORKERS) --max-worker-restart 1 --dist loadfile -m "not soak and not alone" $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m "alone and not soak" $(or $(PYTEST_ARGS),$(ALONE))

# Engines, browsers, Node and schemathesis do not depend on the versions of our libraries, and the pages of
# the documentation show what the newest versions of libraries print.
LOWEST = $(filter-out $(addprefix tests/,clients dashboard docs emulators oci sandbox system),$(patsubst %/,%,$(wildcard tests/*/))) \
    --ignore tests/integrations/test_jupyterlab.py \
    --deselect tests/server/test_verbs.py::test_schemathesis_finds_nothing

test-lowest: ## the tests without engines, with the oldest versions of all libraries that pyproject.toml allows
	@scripts/setup-python lowest
	.cache/lowest/bin/python -m pytest -n $(WORKERS) --max-worker-restart 1 --dist loadfile -m "not soak and not alone" $(or $(PYTEST_ARGS),$(LOWEST))

check: lint types layers ## what can be said without running anything

lint: ## ruff: rules and form
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: ## mypy --strict on src
	$(BIN)/mypy

layers: ## import-linter: no import points upwards
	$(BIN)/lint-imports

format: ## let ruff rewrite the code
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

setup-soak: setup-test ## and what the long ones need: Docker, Podman, an Azure emulator
	@scripts/setup-node tests/emulators
	@scripts/setup-engines --soak

soak: setup-soak ## the long counts and sweeps that `make test` leaves out; says how far it is
	$(BIN)/python -m pytest -v -n $(WORKERS) --dist loadfile -m soak --timeout 3600 --durations 20 $(PYTEST_ARGS)

bench: ## the benchmarks, with the peers side by side; LOAD=1 holds many sandboxes, too (24 minutes)
	@scripts/setup-python bench
	@scripts/setup-python kishu
	@scripts/setup-engines --tests
	$(BIN)/python benchmarks/store.py $(ARGS)
	$(BIN)/python benchmarks/state.py $(ARGS)
	$(BIN)/python benchmarks/session.py $(ARGS)
	$(BIN)/python benchmarks/notebook.py $(ARGS)
	$(BIN)/python benchmarks/container.py $(ARGS)
	$(BIN)/python benchmarks/sandbox.py $(ARGS)
	$(if $(LOAD),$(BIN)/python benchmarks/load.py $(ARGS))
	$(BIN)/python benchmarks/gather.py $(ARGS)

lock: ## write the lock files anew; UPGRADE=1 takes newer versions
	@scripts/lock

clean: ## remove what set-up and tests made here (not the engines)
	rm -rf .venv .cache build dist src/holdfast/dashboard/static .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
