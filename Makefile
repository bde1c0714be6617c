PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test test-fast lint types imports bench docs corpus clean

help:  ## what a contributor can do
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## virtual environment with everything installed

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $(STAMP)

test: setup  ## all tests (needs a C compiler for the stand-in libcuda)
	@command -v cc >/dev/null || { echo "make test needs a C compiler (cc) for the stand-in libcuda.so.1: install gcc or clang"; exit 2; }
	$(BIN)/python -m pytest -n 2 tests

test-fast: setup  ## the tests that take seconds
	$(BIN)/python -m pytest -n 2 -m 'not slow' tests

lint: setup  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy, strict
	$(BIN)/mypy

imports: setup  ## the import contract
	$(BIN)/lint-imports
