# Everything a newcomer needs: `make demo` and `make test` set up what they use.
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do $$p -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
DEMO_RUN := runs/demo
SCHEMES_RUNS := runs/schemes

.PHONY: help install demo schemes test test-slow lint format bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

install: $(VENV)/.core  ## a virtual environment with p3s in it

demo: $(VENV)/.core  ## train a population on InvertedPendulum-v5, about a minute
	rm -rf $(DEMO_RUN)
	$(BIN)/p3s train InvertedPendulum-v5 --preset authors --hidden-sizes 64 64 --steps 28000 --out $(DEMO_RUN)
	$(BIN)/p3s evaluate $(DEMO_RUN)

schemes: $(VENV)/.dev  ## every scheme on Hopper-v5, 30,000 steps each, side by side
	rm -rf $(SCHEMES_RUNS)
	for scheme in p3s sharing resetting distributed center cem erl pbt single; do \
	  $(BIN)/p3s train Hopper-v5 --scheme $$scheme --steps 30000 --out $(SCHEMES_RUNS)/$$scheme || exit; \
	done
	$(BIN)/p3s compare $(SCHEMES_RUNS)/* --out $(SCHEMES_RUNS)/curves.png

test: $(VENV)/.dev  ## the fast tests, in parallel
	$(BIN)/python -m pytest -n 2 --dist loadscope --max-worker-restart 0

test-slow: $(VENV)/.dev  ## trainings that take minutes
	$(BIN)/python -m pytest -m slow --timeout 3600

lint: $(VENV)/.dev  ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.dev  ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev  ## throughput beside Stable-Baselines3, SBX and the matrix-product limit
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python benchmarks/throughput.py

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist
