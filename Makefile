# Every verb of the project. `make demo` and `make test` work from a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PROMPT ?= Write two sentences about the sea.
COMMA  := ,

CORE_SOURCES := CMakeLists.txt $(shell find csrc -type f)

.DEFAULT_GOAL := help
.PHONY: help demo test lint format build bench bench-selftest explore soak sanitize clean

help:  ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

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

bench-selftest: $(VENV)/.built $(VENV)/.dev  ## whether the measuring tools measure right, for some minutes
	$(BIN)/foreword pull smollm2:135m
	$(BIN)/python -m pytest tests/selftest -m selftest -s $(PYTEST_ARGS)

explore: $(VENV)/.built $(VENV)/.dev  ## the property tests on other examples than `make test` has, ROUNDS (10) times
	for round in $$(seq $(or $(ROUNDS),10)); do \
	  $(BIN)/python -m pytest -m hypothesis --hypothesis-profile=explore -q $(PYTEST_ARGS) || exit 1; \
	done

soak: $(VENV)/.built $(VENV)/.dev  ## the prefix cache under random load, and a server whose requests never end, each for MINUTES (10)
	SOAK_S=$$(( $(or $(MINUTES),10) * 60 )) $(BIN)/python -m pytest tests/e2e/test_soak.py tests/e2e/test_arrivals.py -q -s $(PYTEST_ARGS)

# The C++ core with checks in it, each kind in a build folder of its own; not part of `make test`.
SANITIZED = $(BIN)/cmake -S . -B build/$(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
  -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_CXX_COMPILER=$(CXX) -DFOREWORD_SANITIZE=$(2) \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO= \
  && $(BIN)/cmake --build build/$(1) --target $(3)
# The runtime comes before all else in a process whose program was built without it; Python's own
# allocator would hide the bounds of what it hands out, and its leaks are its own. --capture=sys leaves
# standard error to the runtime's report.
SANITIZED_PYTHON = PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
  LD_PRELOAD="$(shell $(CXX) -print-file-name=libasan.so) $(shell $(CXX) -print-file-name=libstdc++.so)" \
  $(BIN)/python

sanitize: $(VENV)/.built $(VENV)/.dev  ## kernels and backend under AddressSanitizer and UBSan, the thread pool under TSan
	$(call SANITIZED,thread,thread,thread_pool_test)
	build/thread/thread_pool_test
	$(call SANITIZED,address,address$(COMMA)undefined,_core)
	$(SANITIZED_PYTHON) tools/pytest_with_core.py build/address/_core*.so tests/parity tests/unit/backends -q --capture=sys -k 'not speed' $(PYTEST_ARGS)

clean:  ## remove everything that was built
	rm -rf $(VENV) build
