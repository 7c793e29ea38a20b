# The two commands: `make run` and `make test`. PORT (default 8000) and DATA_DIR (default .data) can be given.
PORT ?= 8000
DATA_DIR ?= .data
PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest
# What a commit did not touch, its tests of processes and pages do not try (tests/touched.py); TOUCHED= has all of them run.
TOUCHED ?= --touched
# Tests share the processors, but for those that time programs (`timed`) and those of the browser that have programs verified (`alone`).
WORKERS ?= 2
VERIFYING := tests/integrity tests/integration/verifier tests/integration/diffs tests/gpu
INSTALLED := $(filter-out $(VERIFYING) %/__pycache__,$(patsubst %/,%,$(wildcard tests/integration/*/)))
BROWSER := env DJANGO_ALLOW_ASYNC_UNSAFE=1 $(PYTEST) tests/browser $(TOUCHED)
BESIDE := -n $(WORKERS) --maxschedchunk 1
BY_FILE := -n $(WORKERS) --dist loadfile
BY_GROUP := -n $(WORKERS) --dist loadgroup
CORPUS_RESULT ?= bench/results/verifier-corpus-cpu.json

.PHONY: run dev setup assets test test-all test-corpus test-learning lint setup-dev browser-packages bench-solve bench-kernelbench bench-everyday bench-pages bench-stream screenshots first-run clean

run: setup
	@exec env PORT=$(PORT) DATA_DIR=$(DATA_DIR) STITCHWORK_DIE_WITH_PARENT=1 $(PYTHON) -m webapp.supervisor

dev: setup  ## the web process alone, with reloading and tracebacks
	@exec env PORT=$(PORT) DATA_DIR=$(DATA_DIR) STITCHWORK_DIE_WITH_PARENT=1 $(PYTHON) -m webapp.supervisor --only web --debug

setup:
	@scripts/setup
	@scripts/assets

setup-dev:
	@scripts/setup requirements-dev.txt
	@scripts/triton
	@scripts/assets

assets:
	@scripts/assets

test: setup-dev browser-packages
	$(PYTEST) tests/unit -n $(WORKERS) -m "not slow"
	$(PYTEST) $(INSTALLED) $(TOUCHED) $(BY_GROUP) -m "not timed and not slow"
	$(PYTEST) $(VERIFYING) $(TOUCHED) $(BY_FILE) -m "not timed and not slow"
	$(PYTEST) $(INSTALLED) $(VERIFYING) $(TOUCHED) -m "timed and not slow"
	$(BROWSER) $(BESIDE) -m "not alone and not slow"

test-all: setup-dev browser-packages
	$(PYTEST) tests/unit -n $(WORKERS) --durations=15
	$(PYTEST) $(INSTALLED) $(TOUCHED) $(BY_GROUP) -m "not timed" --durations=15
	$(PYTEST) $(VERIFYING) $(TOUCHED) $(BY_FILE) -m "not timed" --durations=15
	$(PYTEST) $(INSTALLED) $(VERIFYING) $(TOUCHED) -m timed --durations=15
	$(BROWSER) $(BESIDE) -m "not alone" --durations=15
	$(BROWSER) -m alone --durations=5

# All cheats and honest programs of the CPU, and all other tests of the verifier: before a change of verifier/ lands, its result committed. A commit's
# own run takes those that it may have broken.
test-corpus: export CORPUS = all
test-corpus: export CORPUS_RESULT := $(CORPUS_RESULT)
test-corpus: setup-dev browser-packages
	$(PYTEST) $(VERIFYING) $(BY_FILE) -m "not timed and not gpu"
	$(PYTEST) $(VERIFYING) -m "timed and not gpu"

# Other trainers against the environment, each in an environment of its own beside .venv, whose packages it sees behind its own.
LEARNING := $(DATA_DIR)/learning
LEARNING_trl := -r requirements-rl.txt
LEARNING_verifiers := verifiers==0.4.0
LEARNING_openenv := openenv==0.10.0
$(LEARNING)/%/ready: requirements-rl.txt
	@$(PYTHON) -m venv $(LEARNING)/$*
	@echo $(abspath $(wildcard .venv/lib/python3*/site-packages)) > $$(echo $(LEARNING)/$*/lib/python3*/site-packages)/beside.pth
	@$(LEARNING)/$*/bin/python -m pip install -q $(LEARNING_$*)
	@touch $@

test-learning: setup-dev $(LEARNING)/trl/ready $(LEARNING)/verifiers/ready $(LEARNING)/openenv/ready  ## TRL, verifiers, OpenEnv's client; beside CI
	$(LEARNING)/trl/bin/python -m pytest tests/integration/rl/test_bridges.py tests/unit/rl/test_export.py -k "trl or parquet"
	$(LEARNING)/verifiers/bin/python -m pytest tests/integration/rl/test_bridges.py -k verifiers
	$(LEARNING)/openenv/bin/python -m pytest tests/integration/rl/test_bridges.py -k openenv

lint: setup-dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/mypy
	node_modules/.bin/biome lint --error-on-warnings
	node_modules/.bin/tsc

browser-packages:
	@scripts/test-packages

screenshots: setup-dev browser-packages  ## docs/screenshots/*.png of a temporary installation with real H200 runs
	$(PYTHON) scripts/screenshots.py

first-run: setup-dev browser-packages  ## docs/screenshots/first-run/*.png: three walks of a newcomer, with clicks and seconds
	$(PYTHON) scripts/first_run.py

bench-solve: setup
	$(PYTHON) bench/solve_all.py

# KERNELBENCH is a checkout; DEVICES cuda:0,cuda:1,...; SETS of stitchcuda-ten, level1, level2, level3, level3-bf16; the same command again continues.
# On a host without a network: PYTHON=python3, with torch and the wheels that bench/notes/2026-11-23-one-host.md lists.
KEEP ?= .data/kernelbench
bench-kernelbench: $(if $(filter .venv/%,$(PYTHON)),setup)  ## KernelBench with the built-in compiler, then the tables
	$(PYTHON) -m bench.sweep run $(KERNELBENCH) --keep $(KEEP) $(if $(DEVICES),--devices $(DEVICES)) $(if $(SETS),--sets $(SETS)) \
		$(if $(LIMIT_SECONDS),--limit-seconds $(LIMIT_SECONDS)) --accept $(OPTIONS)
	$(PYTHON) -m bench.sweep tables $(KEEP)

# The same command again continues. DEVICES=cuda:0,cuda:1,...; LIMIT_SECONDS of a sitting.
bench-everyday: $(if $(filter .venv/%,$(PYTHON)),setup)  ## 48 everyday models with the built-in compiler, then the page of tables
	$(PYTHON) -m bench.everyday run $(if $(DEVICES),--devices $(DEVICES)) $(if $(LIMIT_SECONDS),--limit-seconds $(LIMIT_SECONDS)) $(OPTIONS)
	$(PYTHON) -m bench.everyday tables

bench-pages: setup-dev browser-packages  ## pages in Chromium over 10,000 runs and 1,000,000 events
	$(PYTHON) -m bench.pages.run

bench-stream: setup-dev  ## 100 viewers of one run that emits 200 events a second
	$(PYTHON) -m bench.stream

clean:
	rm -rf .assets node_modules
