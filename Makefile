# make serve   set up what serving needs, fetch the default model, serve on 127.0.0.1:8000
# make test    set up what testing needs, fetch the default model, run ruff, mypy and all tests
# The rest: setup, fetch, lint, bench, docker, clean. ARGS="..." is passed on, for example
#   make serve ARGS="--port 9000 --model ~/models/other.gguf"
#
# The first set-up compiles llama.cpp (some minutes); pip keeps the result in its cache. Stamp files
# in .venv remember what is done, so that running a target again does no work twice.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup serve fetch test lint bench docker clean

# The first of these that is Python 3.11 or newer; override with PYTHON=/path/to/python.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
IMAGE ?= gabarito
ARGS ?=

help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile

setup: $(VENV)/serve.stamp

serve: $(VENV)/serve.stamp
	@exec $(BIN)/gabarito serve $(ARGS)

fetch: $(VENV)/serve.stamp
	@$(BIN)/gabarito fetch $(ARGS)

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/mypy

test: $(VENV)/test.stamp lint
	@$(BIN)/gabarito fetch default >/dev/null
	$(BIN)/python -m pytest $(ARGS)

bench: $(VENV)/serve.stamp
	$(BIN)/python bench/mask_index.py "$$($(BIN)/gabarito fetch | tail -n 1)" $(ARGS)

docker:
	docker build --tag $(IMAGE) .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment ---------------------------------------------------------------------

$(VENV)/python.stamp:
	@test -n "$(PYTHON)" || { \
		echo "Python 3.11 or newer is needed (Debian, Ubuntu: apt install python3 python3-venv)," >&2; \
		echo "or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) can't make virtual environments: install python3-venv" >&2; \
		echo "(Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@for tool in $${CC:-gcc} $${CXX:-g++} make cmake; do command -v "$$tool" >/dev/null || { \
		echo "$$tool is needed to compile llama.cpp" >&2; \
		echo "(Debian, Ubuntu: apt install gcc g++ make cmake)" >&2; exit 1; }; done
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Editable, so that the code in this folder is what runs. No --no-cache-dir here or in the user's
# pip configuration: the compiled bindings are to be kept for the next environment.
$(VENV)/serve.stamp: $(VENV)/python.stamp pyproject.toml
	@echo "Installing; compiling llama.cpp takes some minutes the first time."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/test.stamp: $(VENV)/serve.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@
