PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
RUN_STAMP := $(VENV)/.runtime
DEV_STAMP := $(VENV)/.installed
DEMO_PAGE := demo-report/index.html

.PHONY: help setup demo test test-fast test-nightly lint types imports bench docs corpus clean
.DEFAULT_GOAL := help

help:  ## what a contributor can do
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "needs Python 3.11 or newer (none found; or name one: make PYTHON=/path/to/python3)"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "needs Python 3.11 or newer; $(PYTHON) is older"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# what using zluda needs
$(RUN_STAMP): pyproject.toml | $(BIN)/python
	$(PIP) -e '.[emulator]'
	@touch $@

# what working on it needs
$(DEV_STAMP): pyproject.toml | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $@ $(RUN_STAMP)

setup: $(DEV_STAMP)  ## virtual environment with everything installed

demo: $(RUN_STAMP)  ## replay the corpus on the CPU and an emulated AMD GPU, print the verdicts, write a page
	@mkdir -p $(dir $(DEMO_PAGE))
	$(BIN)/zluda replay corpus/*/trace.bin --device cpu,gfx1030 --html $(DEMO_PAGE)
	@echo "report: $(CURDIR)/$(DEMO_PAGE)"

test: compiler setup  ## the tests that every change must pass (needs a C compiler)
	$(BIN)/python -m pytest -n 2 -m 'not nightly' tests

test-nightly: compiler setup  ## the long ones: many random programs, every golden form on every AMD target; 15 minutes of fuzzing
	$(BIN)/python -m pytest -n 2 -m nightly tests
	$(MAKE) fuzz SECONDS=900

test-fast: compiler setup  ## without the slow tests
	$(BIN)/python -m pytest -n 2 -m 'not slow and not nightly' tests

.PHONY: compiler
compiler:
	@command -v cc >/dev/null || { echo "the tests build a stand-in libcuda.so.1 and need a C compiler (cc): install gcc or clang"; exit 2; }

.PHONY: services
services: setup  ## PTX of vprintf, malloc and the like from their CUDA sources (needs nvcc)
	$(BIN)/python scripts/build_services.py

.PHONY: check-mufu
check-mufu: setup  ## the approximate units over all 2^32 inputs (minutes)
	PYTHONPATH=tests/support $(BIN)/python tests/numerics/mufu_check.py

DEVICE ?= cpu
.PHONY: conformance
conformance: setup  ## every instruction form against an H200's results, on DEVICE=cpu, gfx1030 … (a minute)
	$(BIN)/python tests/conformance/judge.py --device $(DEVICE) --jobs 2

SECONDS ?= 60
SEED ?=
.PHONY: fuzz
fuzz: setup  ## random programs and mutants, the CPU against emulated AMD GPUs, for SECONDS=60 from SEED (default: the time)
	ZLUDA_CACHE_POLICY=off $(BIN)/python tests/fuzz/fuzz.py --mix --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

.PHONY: fuzz-texts
fuzz-texts: setup  ## 100,000 damaged PTX texts, each to end in a module or an error
	$(BIN)/python tests/fuzz/texts.py --count 100000

lint: setup  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy, strict
	$(BIN)/mypy

imports: setup  ## the import contract
	$(BIN)/lint-imports

bench: setup  ## measure, and write docs/benchmarks.md
	$(BIN)/python -m bench --write docs/benchmarks.md

JOBS ?= 1
.PHONY: bench-detect
bench-detect: setup  ## seed bugs into zluda, and print how many are found, with JOBS=1 at once (minutes)
	$(BIN)/python -m bench.detect --jobs $(JOBS) --write docs/detection.md

docs: setup  ## regenerate the tables of what is supported
	$(BIN)/python scripts/generate_docs.py

corpus: setup  ## record the corpus again (needs an NVIDIA GPU and nvcc)
	$(BIN)/zluda corpus record

clean:  ## remove what was built
	rm -rf $(VENV) build demo-report *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
