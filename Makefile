# Everything a newcomer needs: `make demo` and `make test` set up what they use.
# CONSTRAINED=1 installs the versions of constraints.txt: make test CONSTRAINED=1
PYTHON ?= $(shell for p in python3.12 python3.11 python3.13 python3; do $$p -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
DEMO_RUN := runs/demo
SCHEMES_RUNS := runs/schemes
WHEEL_VENV := build/wheel-venv

PINNED := $(if $(CONSTRAINED),-constrained)
CONSTRAINTS := $(if $(CONSTRAINED),constraints.txt)
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check $(addprefix -c ,$(CONSTRAINTS))
CORE := $(VENV)/.core$(PINNED)
DEV := $(VENV)/.dev$(PINNED)
DOCS := $(VENV)/.docs$(PINNED)

.PHONY: help install demo schemes test test-slow test-cluster campaign lint format docs docs-version \
  wheel dist release-check bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(CORE): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) -e '.[mujoco]'
	@touch $@

$(DEV): $(CORE)
	$(BIN)/python $(PIP_INSTALL) -e '.[dev]'
	@touch $@

$(DOCS): $(CORE)
	$(BIN)/python $(PIP_INSTALL) -e '.[docs]'
	@touch $@

install: $(CORE)  ## a virtual environment with p3s and MuJoCo in it

demo: $(CORE)  ## train a population on InvertedPendulum-v5, about a minute
	rm -rf $(DEMO_RUN)
	$(BIN)/p3s train InvertedPendulum-v5 --hidden-sizes 64 64 --steps 28000 --out $(DEMO_RUN)
	$(BIN)/p3s evaluate $(DEMO_RUN)

schemes: $(DEV)  ## every scheme of the paper on Hopper-v5, 30,000 steps each, side by side
	rm -rf $(SCHEMES_RUNS)
	for scheme in p3s sharing resetting distributed center cem erl pbt single; do \
	  $(BIN)/p3s train Hopper-v5 --scheme $$scheme --preset paper --steps 30000 --out $(SCHEMES_RUNS)/$$scheme || exit; \
	done
	$(BIN)/p3s compare $(SCHEMES_RUNS)/* --out $(SCHEMES_RUNS)/curves.png

test: $(DEV)  ## the fast tests, in parallel
	$(BIN)/python -m pytest -n 2 --dist loadscope --max-worker-restart 0

test-slow: $(DEV)  ## trainings that take minutes, in parallel
	$(BIN)/python -m pytest -m slow -n 2 --dist loadscope --max-worker-restart 0 --timeout 3600 $(TESTS)

test-cluster: $(DEV)  ## Ray clusters of several nodes, all on this machine
	$(BIN)/python -m pytest -m slow --timeout 1800 tests/cluster tests/study/test_on_ray.py

campaign: $(DEV)  ## faults and bad input on purpose; prints what was lost
	$(BIN)/python -m campaign

lint: $(DEV)  ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(DEV)  ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS)  ## the documentation as a site, in build/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # with --quiet it would not count warnings
	@echo build/docs/index.html

# VERSION=0.3.0, PUSH=--push: mike keeps a site per version on the branch gh-pages.
docs-version: $(DOCS)  ## add this version to the documentation's site
	@version="$(or $(VERSION),$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml))" && \
	  PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 \
	  $(BIN)/mike deploy $(PUSH) --update-aliases "$${version%.*}" latest && \
	  PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/mike set-default $(PUSH) latest

# Installed without extras, outside the checkout: what `pip install p3s` gives must work alone.
wheel: $(CORE)  ## build a wheel into dist/, install it in a fresh environment and try it
	@rm -rf dist $(WHEEL_VENV)
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@$(PYTHON) -m venv $(WHEEL_VENV)
	@$(WHEEL_VENV)/bin/python $(PIP_INSTALL) dist/p3s-*.whl
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && bin=$(CURDIR)/$(WHEEL_VENV)/bin && cd "$$folder" && \
	  "$$bin/p3s" --version && \
	  "$$bin/python" -c "import p3s" && \
	  "$$bin/p3s" train CartPole-v1 --algorithm dqn --scheme single --hidden-sizes 16 16 \
	    --initial-steps 100 --steps 600 --evaluation-episodes 1 --no-report --out run && \
	  "$$bin/p3s" evaluate run --episodes 1
	@rm -rf $(WHEEL_VENV)
	@ls dist/p3s-*.whl

# TAG=v0.3.0: fails if that is not the version of this commit.
dist: $(CORE)  ## build wheel and sdist into dist/ and check them
	@$(BIN)/python .ci/version.py $(TAG)
	@$(BIN)/python $(PIP_INSTALL) build twine
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist . > /dev/null
	@$(BIN)/twine check --strict dist/*

release-check:  ## the gate of a release, hours: everything on a fresh clone; STEPS="dist readme" takes some
	@$(PYTHON) .ci/release_check.py $(STEPS)

bench: $(DEV)  ## throughput beside Stable-Baselines3, SBX and the matrix-product limit
	$(BIN)/python $(PIP_INSTALL) torch==2.13.0
	$(BIN)/python $(PIP_INSTALL) -e '.[bench]'
	$(BIN)/python benchmarks/throughput.py

clean:  ## remove the virtual environment, caches and what was built
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist
