# Every target makes the virtual environment that it needs, in this checkout, once.
# PYTHON=/path/to/python3.13 chooses the interpreter; PYTEST_ARGS="-k archive" goes to pytest.

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
DEMO := examples/slowformer
OUT := build/demo
# Tests start some hundred processes. A verifier writes no bytecode and reads what is there.
export PYTHONDONTWRITEBYTECODE :=
COMPILE := -m compileall -q -j 0 cudal1_ci model_training

.DEFAULT_GOAL := help
.PHONY: help venv rig demo test test-all check lint style types sandboxed-types format bench figures bench-smoke docs wheel pins schema clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: ## Make .venv and install this checkout and its tests into it
	@.ci/venv $(VENV)

rig: ## Install what holds our requests against GitHub's own description of them
	@.ci/github-rig

demo: venv ## Scan the example without torch.compile: build/demo/report.json and report.html
	@mkdir -p $(OUT)
	$(BIN)/cudal1-ci trace $(DEMO)
	$(BIN)/cudal1-ci scan $(DEMO) --no-compile --json $(OUT)/report.json --html $(OUT)/report.html

# What compiles, is slow or asks a clock is of test-all. There the clock comes last, with nothing
# beside it; --attacks draws the attacks and the honest programs of test.
ALL := not gpu and not model and not network
USUAL := $(ALL) and not slow and not compiles and not times
BESIDE := -n auto --dist loadscope -p no:benchmark

test: venv rig ## Run the usual tests: no GPU, no model, no network, no clock
	@$(PY) $(COMPILE)
ifeq ($(PYTEST_ARGS),)
	@OMP_NUM_THREADS=1 $(PY) -m pytest $(BESIDE) --attacks=commit -m "$(USUAL)"
else
	$(PY) -m pytest $(PYTEST_ARGS)
endif

test-all: venv rig ## Run all tests that need no GPU, no model and no network
	@$(PY) $(COMPILE)
	@OMP_NUM_THREADS=1 $(PY) -m pytest $(BESIDE) -m "$(ALL) and not times"; \
		beside=$$?; $(PY) -m pytest -m "$(ALL) and times" && exit $$beside

# Each of the two readings of all types keeps one processor busy for half a minute.
lint: venv ## Formatting, lint, types, layers and language
	@$(MAKE) --no-print-directory --output-sync=target -j 2 -o venv types sandboxed-types style

style: venv ## What of lint reads no types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(PY) .ci/words
	$(PY) .ci/architecture --check
	$(PY) .ci/rules --check
	$(PY) .ci/reference --check

types: venv ## Types
	$(BIN)/mypy

sandboxed-types: venv ## Types of what runs in a project's interpreter, by Python 3.10
	$(BIN)/mypy --python-version 3.10 --follow-imports=silent cudal1_ci/sandboxed

check: lint test ## All that CI checks: lint, then test

format: venv ## Format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Those that need nothing but this checkout; experiments/README.md has the others.
BENCH := aa sequential_errors detection sensitivity

bench: venv ## Run the experiments that need nothing but a CPU, in hours; BENCH=aa for one
	@set -e; for name in $(BENCH); do echo "== $$name"; $(PY) experiments/$$name.py; done

figures: venv ## Write the figures of the pages from their extracts
	$(PY) experiments/extracts.py
	$(PY) experiments/playbook_table.py
	$(PY) experiments/exploit_table.py
	$(PY) experiments/demo_picture.py
	$(PY) .ci/reference

SMOKE := CUDAL1_CI_TRIAL_MEASURE=2s CUDAL1_CI_TRIAL_LAUNCH=0.5s CUDAL1_CI_TRIAL_BATCH_US=1500

bench-smoke: venv ## A report card of five small tasks on the CPU: build/bench/run.json and run.html
	@mkdir -p build/bench
	$(SMOKE) $(BIN)/cudal1-ci bench tests/bench_tasks/KernelBench tests/bench_tasks/published.json \
		--solvers eager,playbook,published,best --policy cuda-l1 --device cpu --fresh \
		--output build/bench/run.json --html build/bench/run.html

# In an environment of its own: the site needs nothing of the package.
DOCS := build/docs-venv

docs: ## Build the site of the documentation: build/site/index.html
	@.ci/venv $(DOCS) $$($$(.ci/venv --python) .ci/group docs)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet

wheel: venv ## Build the wheel and the source distribution and check them
	rm -rf dist
	$(PY) -m build --no-isolation
	$(BIN)/twine check --strict dist/*

# The pins are what a fresh environment gets today; those of the CUDA build of torch are kept where this
# machine installs the CPU build, as a pin of what is not installed does no harm.
pins: ## Renew constraints.txt
	.ci/pins > constraints.txt.new
	mv constraints.txt.new constraints.txt

schema: venv ## Renew the JSON Schemas of reports and of the configuration
	$(PY) -c "from cudal1_ci.records.published import schema_text; print(schema_text(), end='')" > schema.new
	mv schema.new cudal1_ci/schema/report.schema.json
	$(PY) -c "from cudal1_ci.config.schema import schema_text; print(schema_text(), end='')" > schema.new
	mv schema.new cudal1_ci/schema/config.schema.json

clean: ## Remove what was built; the environment too
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
