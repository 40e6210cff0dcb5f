# Every target sets up its own virtual environment, once: nothing needs to be installed beforehand but Python 3.11.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# lightly's losses are a second reference in tests, and a competitor in a benchmark. They need torch only; its declared
# dependencies (Lightning, hydra, its web client) do not come along, which requirements.txt could not say.
LIGHTLY := lightly==1.6.0

.PHONY: help setup demo test lint types check bench test-newest test-oldest clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

$(READY): requirements.txt setup.py pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps $(LIGHTLY)
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

setup: $(READY)  ## create the virtual environment

demo: $(READY)  ## the shortest demonstration of what there is
	$(BIN)/isogclr demo

test: $(READY)  ## the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(READY)  ## ruff: style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy, strict on src/isogclr
	$(BIN)/mypy

check: lint types test  ## what CI runs

# LibAUC is a competitor in the benchmark only; its declared dependencies (graph and medical packages) are not
# needed by the one loss that is measured.
$(VENV)/.bench: $(READY)
	$(BIN)/python -m pip install --quiet --no-deps libauc==2.0.1
	touch $@

bench: $(VENV)/.bench  ## benchmarks, as ratios within one run
	$(BIN)/python -m benchmarks

# Fresh environments of their own: the ranges of setup.py, not the pins. PYTHON=python3.13 chooses another Python.
test-newest:  ## install the newest versions that setup.py allows; run a training, an eval, the report, the demo
	bash scripts/test_install.sh $(PYTHON)

test-oldest:  ## the same with the oldest
	bash scripts/test_install.sh $(PYTHON) scripts/oldest.txt

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
