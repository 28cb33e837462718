# The chores by name. `make` alone lists them.
PYTHON ?= python3
CORES ?= all
TORCH ?= 2.13.0
BIN := $(CURDIR)/.venv/bin
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES)
READY := .venv/.ready
COMMIT ?= $(shell git describe --always --dirty --abbrev=40 --exclude '*')
GROUP ?= $(sort $(notdir $(basename $(wildcard config/reference/*.yaml))))

.PHONY: help setup report benchmark reference peers test test-docker test-slurm image wheelhouse check format docs lock licences clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv from requirements.lock and install the package

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

report: setup ## run config/smoke.yaml: two minutes to results/smoke/report.html
	$(SNAKEMAKE) --configfile config/smoke.yaml
	@echo "report: $(CURDIR)/results/smoke/report.html"

benchmark: setup ## run config/config.yaml: 30 cells of 100,000 steps, to results/pendulum/report.html
	$(SNAKEMAKE) --configfile config/config.yaml
	@echo "report: $(CURDIR)/results/pendulum/report.html"

reference: setup ## run config/reference/*.yaml (or GROUP=pendulum) and judge what was learned: hours
	set -e; for group in $(GROUP); do $(SNAKEMAKE) --configfile config/reference/$$group.yaml; done
	$(BIN)/python benchmarks/learning_gates.py $(GROUP:%=results/reference-%)

peers: setup ## run config/peers.yaml: ours against other libraries', to results/peers/report.html
	$(SNAKEMAKE) --configfile config/peers.yaml
	@echo "report: $(CURDIR)/results/peers/report.html"

test: setup ## run the test suite
	$(BIN)/pytest --numprocesses 2

test-docker: setup ## build the image and run it under a Docker engine of its own: root, Debian or Ubuntu
	$(BIN)/pytest -p no:cacheprovider --capture=no --verbose tests/integration/with_docker.py

test-slurm: setup ## run the smoke grid under a one-node SLURM of its own: root, Debian or Ubuntu
	$(BIN)/pytest -p no:cacheprovider --capture=no --verbose tests/integration/with_slurm.py

image: ## build the image rlbench; BUILD="--build-arg BASE_IMAGE=..." gives docker build more arguments
	DOCKER_BUILDKIT=1 docker build --build-arg GIT_COMMIT=$(COMMIT) $(BUILD) --tag rlbench .

wheelhouse: $(READY) ## put every wheel of requirements.lock into container/wheelhouse, for an offline build
	$(BIN)/pip wheel --quiet --disable-pip-version-check --requirement requirements.lock --wheel-dir container/wheelhouse

check: setup ## lint, format, types, imports, workflow
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

format: setup ## format Python and Snakemake files
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/snakefmt Snakefile workflow

docs: setup ## write config/README.md from the settings
	$(BIN)/python -m rlbench.spec.document > config/README.md

lock: ## write requirements.lock anew from pyproject.toml
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet "torch==$(TORCH)" ".[dev]"
	{ echo "# Every version that 'make setup' installs; written by 'make lock'. torch is pinned by version"; \
	  echo "# only: its CUDA build brings CUDA packages of its own, its CPU build none."; \
	  .venv-lock/bin/pip freeze --exclude rlbench | sed 's/^torch==\([0-9.]*\).*/torch==\1/'; } > requirements.lock
	rm -rf .venv-lock

licences: setup ## write docs/licences.md: the licence of each package in requirements.lock
	rm -rf .venv-licences
	$(PYTHON) -m venv .venv-licences
	.venv-licences/bin/pip install --quiet --disable-pip-version-check pip-licenses==5.5.5
	{ sed '/^|/,$$d' docs/licences.md; \
	  .venv-licences/bin/pip-licenses --python=$(BIN)/python --from=mixed --with-system --format=markdown \
	    --ignore-packages rlbench pip setuptools | sed 's/+cpu / /' ; } > docs/licences.md.new
	mv docs/licences.md.new docs/licences.md
	rm -rf .venv-licences

clean: ## remove results/ (all of it), caches and .venv
	find results -mindepth 1 ! -name README.md -delete
	rm -rf .venv .snakemake .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
