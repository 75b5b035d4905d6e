# Everything a developer or a CI machine does. Needs Python 3.11+ and make; `make setup` brings the
# rest into .venv, and every target that needs it does so first.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
MEMBERS := $(wildcard libs/*/pyproject.toml services/*/pyproject.toml cli/pyproject.toml)
# Arguments passed through: make test ARGS="-k epochs", make demo ARGS="--file my.txt".
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo up test check format openapi lock soak bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## Make .venv from requirements.lock (a no-op when nothing changed)

$(READY): requirements.lock scripts/setup.py $(MEMBERS)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("setup: $(PYTHON) is %d.%d, but Leadline needs Python 3.11 or newer: make setup PYTHON=python3.12" % sys.version_info[:2])'
	@$(PYTHON) scripts/setup.py
	@touch $@

demo: setup ## Run a cluster, kill its leaders, prove that no acknowledged line is lost
	@$(BIN)/leadline demo $(ARGS)

up: setup ## Run a cluster in the foreground
	@$(BIN)/leadline up $(ARGS)

test: setup ## Run every test but the long fault runs
	$(BIN)/python -m pytest -n 2 tests/unit tests/simulation tests/contract $(ARGS)
	$(BIN)/python -m pytest tests/integration tests/e2e tests/browser $(ARGS)

check: setup ## Lint, formatting, types, import rules, OpenAPI drift
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/openapi.py --check

format: setup ## Format the code and mend what the linter can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

openapi: setup ## Write openapi/*.json anew from the services
	$(BIN)/python scripts/openapi.py

lock: setup ## Resolve requirements.lock anew (ARGS=--upgrade for newer versions)
	$(BIN)/python scripts/lock.py $(ARGS)

soak: setup ## Run the long fault tests
	$(BIN)/python -m pytest -m soak --timeout 3600 tests $(ARGS)

bench: setup ## Run the benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

clean: ## Remove everything that a target made
	rm -rf .venv .artifacts .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find libs services cli tests benchmarks scripts -name __pycache__ -prune -exec rm -rf {} +
