# Every verb of the project. `make demo` and `make test` work from a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PROMPT ?= Write two sentences about the sea.

CORE_SOURCES := CMakeLists.txt $(shell find csrc -type f)

.DEFAULT_GOAL := help
.PHONY: help demo test lint format build bench clean

help:  ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "foreword needs Python 3.10 or newer: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The package, editable: Python edits need no rebuild, a C++ edit rebuilds what it touches, and only
# a change of pyproject.toml needs the network.
$(VENV)/.built: pyproject.toml $(CORE_SOURCES) | $(BIN)/python
	@if [ ! -e $(VENV)/.dependencies ] || [ pyproject.toml -nt $(VENV)/.dependencies ]; then \
	  echo "installing what foreword needs"; \
	  $(PIP) 'scikit-build-core>=0.11' 'nanobind>=2.4' 'cmake>=3.26' ninja && \
	  $(PIP) --no-build-isolation -e . && touch $(VENV)/.dependencies; \
	else \
	  echo "building the C++ core"; \
	  $(PIP) --no-build-isolation --no-deps --no-index -e .; \
	fi
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.built
	$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

build: $(VENV)/.built  ## build the C++ core in place

demo: $(VENV)/.built  ## fetch the default model and answer one prompt
	@$(BIN)/foreword run "$(PROMPT)"

test: $(VENV)/.built $(VENV)/.dev  ## everything from nothing, then all tests
	$(BIN)/foreword pull smollm2:135m gemma3:270m
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.built $(VENV)/.dev  ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## rewrite to the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.built  ## TTFT and decode speed of the default model
	$(BIN)/foreword bench latency

clean:  ## remove everything that was built
	rm -rf $(VENV) build
