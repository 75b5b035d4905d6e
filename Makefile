# Everything a developer or a CI machine does. Needs Python 3.11+ and make; `make setup` brings the
# rest into .venv, and every target that needs it does so first.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
MEMBERS := $(wildcard libs/*/pyproject.toml services/*/pyproject.toml pipeline/pyproject.toml cli/pyproject.toml)
# Arguments passed through: make unit ARGS="-k epochs", make demo ARGS="--file my.txt".
ARGS ?=
PORT ?= 8000

# A cluster is eight Python processes: without bytecode files each compiles all of its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo up test test-slow unit integration check lint types imports drift \
	format openapi lock sbom wheels faults gate soak test-upgrade mutants model bench bench-peers clean \
	checkwheels docs docs-serve docs-linkcheck screenshots

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## Make .venv from requirements.lock (a no-op when nothing changed)
	@:

$(READY): requirements.lock scripts/setup.py $(MEMBERS)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("setup: $(PYTHON) is %d.%d, and Leadline needs Python 3.11 or newer. If it is here under another name: make setup PYTHON=python3.12" % sys.version_info[:2])'
	@$(PYTHON) scripts/setup.py
	@touch $@

demo: setup ## Run a cluster, kill its leaders, prove that no acknowledged line is lost
	@$(BIN)/leadline demo $(ARGS)

up: setup ## Run a cluster in the foreground
	@$(BIN)/leadline up $(ARGS)

# Which tests instead of those that every change must pass (addopts in pyproject.toml).
MARKS ?=

test: unit integration ## Run the tests that every change must pass

test-slow: ## Run the tests that cost much and seldom find what no other test finds
	@$(MAKE) test MARKS="slow and not soak"

# The simulations first, and a few tests at a time: some take minutes, and would run alone at the end.
unit: setup ## Run the tests that start no cluster, three at a time
	$(BIN)/python -m pytest -n 3 --maxschedchunk 8 --durations 30 $(if $(MARKS),-m "$(MARKS)") \
		tests/runtime_simulation tests/simulation tests/unit $(ARGS)

# The longest first, and what shares a cluster together (tests/support/distribution.py).
# Much of their time is waiting for a fault to be noticed, so that three keep two cores busy.
integration: setup ## Run the tests on real processes, three files at a time
	$(BIN)/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder --retry-alone 3 --durations 60 \
		$(if $(MARKS),-m "$(MARKS)") \
		$$($(BIN)/python -m tests.support.browser.chromium) \
		tests/spark tests/e2e tests/contract tests/integration $(ARGS)

check: lint types imports drift ## Lint, formatting, vocabulary, rules of the repository, types, import rules, drift of generated files

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/typos
	$(BIN)/python -m pytest -q tests/unit/test_repository.py

types: setup
	$(BIN)/python -m mypy

imports: setup
	$(BIN)/lint-imports --no-logo

drift: setup
	$(BIN)/python scripts/openapi.py --check
	$(BIN)/python scripts/generate_docs.py --check
	$(BIN)/python scripts/bill_of_materials.py --check

format: setup ## Format the code and mend what the linter can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

openapi: setup ## Write openapi/*.json and the generated pages of docs/ from the code
	$(BIN)/python scripts/openapi.py
	$(BIN)/python scripts/generate_docs.py

sbom: setup ## Write docs/licences.md, and a bill of materials into dist/
	$(BIN)/python scripts/bill_of_materials.py

# The pages say themselves what is in the table of contents: see scripts/documentation/pages.py.
SPHINX := $(BIN)/python -m sphinx -E -c scripts/documentation -d .artifacts/site-state

docs: setup ## Make the documentation as a site in .artifacts/site; a warning is an error
	$(SPHINX) -q -W --keep-going -b html . .artifacts/site $(ARGS)
	@echo "open .artifacts/site/index.html"

docs-serve: docs ## Serve the site on 127.0.0.1 (PORT=8000)
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory .artifacts/site $(PORT)

docs-linkcheck: setup ## Follow the external links of the site, which needs a network
	$(SPHINX) -q -b linkcheck . .artifacts/site-links $(ARGS)

screenshots: setup ## Make the pictures in docs/images by the browser tests
	$(BIN)/python scripts/screenshots.py

lock: setup ## Resolve requirements.lock (ARGS=--upgrade for newer versions)
	$(BIN)/python scripts/lock.py $(ARGS)

wheels: setup ## Build the wheels of all members into dist/
	$(BIN)/python scripts/wheels.py

checkwheels: wheels ## Install the server's wheels into a new environment, and measure it
	$(BIN)/python scripts/check_wheels.py

# S: which scenario; SEEDS: how many seeds, one run each; SEED: the first of them.
S ?=
SEEDS ?= 5
SEED ?= 1
MINUTES ?=

faults: setup ## List the fault scenarios, or run one with several seeds (S=S17 SEEDS=5)
	@$(BIN)/python -m tests.support.faults $(S) --seeds $(SEEDS) --first-seed $(SEED) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

gate: setup ## Run what a change of the protocol must pass: twelve scenarios, 10,000 seeds
	@$(BIN)/python -m tests.support.faults gate $(ARGS)

soak: setup ## Run the long fault tests, or the random mix of faults for so long (MINUTES=60)
	$(if $(MINUTES),$(BIN)/python -m tests.support.faults S30 --seeds 1 --first-seed $(SEED) \
		--minutes $(MINUTES) $(ARGS),$(BIN)/python -m pytest -m soak --timeout 3600 tests $(ARGS))

test-upgrade: setup ## Exchange this release and the previous one under load, by rolling restarts
	$(BIN)/python -m pytest -m soak -rs --timeout 600 tests/e2e/test_cluster_upgrade.py $(ARGS)

mutants: setup ## Plant mistakes in the protocol, and show that tests notice each one
	$(BIN)/python -m scripts.mutants $(ARGS)

model: setup ## Search the model of the replication protocol for a violation (ARGS="--off R5")
	$(BIN)/python -m tests.protocol_model $(ARGS)

bench: setup ## Run the benchmarks one after another
	@for benchmark in benchmarks/[!_]*.py; do \
		echo "== $$benchmark"; $(BIN)/python "$$benchmark" $(ARGS) || exit 1; done

bench-peers: setup ## Measure Leadline beside Apache Kafka (ARGS="--quick --only produce")
	$(BIN)/python benchmarks/peers $(ARGS)

clean: ## Remove everything that a target made
	rm -rf .venv .artifacts .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find libs services pipeline cli tests benchmarks scripts -name __pycache__ -prune -exec rm -rf {} +
