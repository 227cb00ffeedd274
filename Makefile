# make demo | make test | make setup | make wheel
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# A stamp carries a hash of what set-up depends on, so a second set-up does nothing.
HASH := $(shell cat pyproject.toml checker/pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
USER_STAMP := $(VENV)/.user-$(HASH)
STAMP := $(VENV)/.setup-$(HASH)

.PHONY: demo test soundness fuzz proofs-fuzz proofs-known setup user lint benchmark results recheck docs docs-serve wheel clean

demo: user
	$(BIN)/steadynet demo

# what a user needs; what the tests and the documentation need comes with setup
user: $(if $(wildcard $(STAMP)),,$(USER_STAMP))

setup: $(STAMP)

$(USER_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "steadynet needs Python 3.10 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) "setuptools>=77"
	$(INSTALL) --no-build-isolation --editable ".[report]" --editable ./checker
	rm -f $(filter-out $(STAMP),$(wildcard $(VENV)/.user-* $(VENV)/.setup-*))
	touch $@

$(STAMP): pyproject.toml constraints.txt | $(USER_STAMP)
	$(INSTALL) --no-build-isolation --editable ".[dev]"
	touch $@

# a wheel in dist/, which pip installs anywhere; a new folder for building, so that no file of an older build gets in
wheel: user
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	rm -rf build

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# first what needs the machine for itself: a cluster of Ray, and time-outs of verifiers; then two files of tests at a time
ALONE := tests/experiments/test_engine_ray.py tests/verification/test_verifiers_contract.py
test: lint
	$(BIN)/pytest $(ALONE)
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(addprefix --ignore ,$(ALONE))

# properties whose truth is known, and 4,004 random networks decided by the search and by MILP; other verifiers beside them
soundness: setup
	OMP_NUM_THREADS=1 $(BIN)/python tests/support/long_soundness.py

# fuzz the readers with 52,000 mutated VNN-LIB and ONNX files: about five minutes
fuzz: setup
	OMP_NUM_THREADS=1 $(BIN)/python tests/support/fuzz.py --cases 52000

# 10,000 damaged and forged proofs: steadycheck must accept none wrongly
proofs-fuzz: setup
	OMP_NUM_THREADS=1 $(BIN)/python tests/support/proof_fuzz.py --cases 10000

# every proof of the self-test's families, and of the shared VNN-COMP instances if they are there: each must check
proofs-known: setup
	OMP_NUM_THREADS=1 $(BIN)/python tests/support/checked_proofs.py

# the time of a training step, the strength of its inner search, and what a busy machine costs; half an hour, as two
# small networks are trained the first time
benchmark: setup
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/inner_search.py
	$(BIN)/python benchmarks/busy_machine.py

# decide every published verdict again from the published weights, with the time-out that it had: hours
recheck: setup
	OMP_NUM_THREADS=1 $(BIN)/python tests/support/recheck.py

# the pages of docs/results/, and the generated parts of docs/which-method.md and README.md, from results/
results: setup
	$(BIN)/python docs/figures/published_pages.py

# the documentation as a site that needs no server and no network: open site/index.html
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean:
	rm -rf $(VENV) build dist demo runs site .mypy_cache .ruff_cache .pytest_cache .hypothesis
