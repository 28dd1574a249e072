# make demo | serve | test | test-all | bench | results | lint | docs | wheel: each sets up what it needs in .venv, from the exact versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed
DEV_SETUP := $(VENV)/.installed-dev
ALL_SETUP := $(VENV)/.installed-all
GENERATORS := build/generators
MOTO := build/moto
FLOWER := build/flower
NVFLARE := build/nvflare
PEERS := build/peers
# opake-accounting has wheels for 3.13 that import, and none for older ones.
PEERS_PYTHON ?= python3.13
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check

# Processes that the tests run in: three for two cores, since many wait for services and workers; up to eight. PROCESSES=0 runs them in
# this one, for a debugger.
PROCESSES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)
# Each process computes with one thread, or they are in each other's way.
# Memory that was given back is asked for again by the next grid: to have the kernel empty it each time costs a tenth of the accounting.
PYTEST := OMP_NUM_THREADS=1 MALLOC_TRIM_THRESHOLD_=268435456 MALLOC_MMAP_THRESHOLD_=33554432 $(BIN)/python -m pytest

# Without kept bytecode every process of the tests would compile hundreds of modules anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-all generators peers doctest setup lint bench results docs wheel clean

help:
	@echo "make demo   train privately on handwritten digits, end to end, and check the certificate"
	@echo "make serve  run the service and one worker; prints the address of the documentation"
	@echo "make test   run the tests, three processes for two cores (make test PROCESSES=1 for fewer)"
	@echo "make test-all  run all tests, with those that repeat at more power, points or rounds what make test shows"
	@echo "make generators  what reads the OpenAPI document in make test-all: linters and generators of clients, into build/generators"
	@echo "make lint   linters, types and import rules"
	@echo "make bench  benchmarks, as ratios against peers"
	@echo "make results  train every recipe whose data are here, beside ordinary training, into docs/results.md: days; SEEDS=1 for one seed each"
	@echo "make peers  other accountants, which make bench compares with where they are there; needs Python 3.13 (PEERS_PYTHON)"
	@echo "make wheel  a wheel and a source distribution, into build/dist"
	@echo "make docs   the handbook, into build/docs; the service serves it under /handbook"

# What developers need beside is left out for whoever only runs the service.
$(SETUP): EXTRAS := worker
$(DEV_SETUP): EXTRAS := worker,dev
$(ALL_SETUP): EXTRAS := worker,dev-all

# A new pip first: Python's own looks for versions twice as long. Then torch, pinned: a range would pull another build with gigabytes
# of GPU libraries. Only what is imported is compiled, when it is.
$(SETUP) $(DEV_SETUP) $(ALL_SETUP): constraints.txt pyproject.toml zetadp/version.py $(wildcard */*/_*.[ch] */*/*/_*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "zetadp needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) "$$(grep '^pip==' constraints.txt)"
	$(INSTALL) "$$(grep '^torch==' constraints.txt)"
	$(INSTALL) --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $(SETUP) $(if $(findstring dev-all,$(EXTRAS)),$(DEV_SETUP)) $@

demo: $(SETUP)
	$(BIN)/zetadp demo

serve: $(SETUP)
	$(BIN)/zetadp serve --with-worker

test: doctest
	$(PYTEST) tests --numprocesses $(PROCESSES) --maxprocesses 8

# The integrations' packages are in the environment from then on, and make test has their tests too.
test-all: $(ALL_SETUP) $(MOTO)/.installed $(FLOWER)/.installed $(NVFLARE)/.installed doctest
	$(PYTEST) tests --numprocesses $(PROCESSES) --maxprocesses 8 --all

# An environment of its own: moto, which stands in for S3, needs an older python-dateutil than what else is tested.
$(MOTO)/.installed: tests/moto/requirements.txt
	$(PYTHON) -m venv $(MOTO)
	$(MOTO)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/moto/requirements.txt
	@touch $@

# An environment of its own: Flower needs older versions of FastAPI, Starlette, typer and rich than the service.
$(FLOWER)/.installed: trainer/sites/flower/requirements.txt
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check --requirement trainer/sites/flower/requirements.txt
	@touch $@

# An environment of its own: NVFLARE brings Flask and its own pins.
$(NVFLARE)/.installed: trainer/sites/nvflare/requirements.txt
	$(PYTHON) -m venv $(NVFLARE)
	$(NVFLARE)/bin/python -m pip install --quiet --disable-pip-version-check --requirement trainer/sites/nvflare/requirements.txt
	@touch $@

# An environment of its own: openapi-python-client needs an older typer than the service. The generators of clients need Java, the linters node.
generators:
	$(PYTHON) -m venv $(GENERATORS)
	$(GENERATORS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/generators/requirements.txt
	cp tests/generators/package.json $(GENERATORS)/
	npm install --prefix $(GENERATORS) --silent --no-audit --no-fund

# In an environment of their own, but for opacus, which takes this one's torch, and for python-flint, which computes truths.
peers: $(DEV_SETUP)
	$(PEERS_PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/peers.txt
	$(INSTALL) --constraint constraints.txt --no-deps opacus opt_einsum python-flint==0.9.0

# In a process of its own: what a server of the tests says would stand in the examples' output. Beside it the tests' modules are compiled,
# which each process of the tests would else do for itself.
doctest: $(DEV_SETUP)
	$(PYTEST) tests --collect-only -qq >/dev/null & $(PYTEST) --quiet zetadp handbook; result=$$?; wait; exit $$result

setup: $(DEV_SETUP)

lint: $(DEV_SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(DEV_SETUP)
	$(BIN)/python -m benchmarks

# Without a network. A link that leads nowhere fails it, unless --quiet hides the warnings that are counted. As a module, so that its hooks
# find the packages that they read.
docs: $(DEV_SETUP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# Days for all of it; what was run before isn't run again. ZETADP_DATA_SETS_DIR is the folder of the data sets.
SEEDS ?= 3
results: $(DEV_SETUP)
	$(BIN)/python -m benchmarks.results --seeds $(SEEDS)

wheel: $(DEV_SETUP)
	$(BIN)/python -m build --outdir build/dist .

clean:
	rm -rf $(VENV) demo-output build */*/_*.so */*/*/_*.so
