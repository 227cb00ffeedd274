# make demo | make test | make setup
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The stamp carries a hash of what set-up depends on, so a second set-up does nothing.
STAMP := $(VENV)/.setup-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: demo test soundness fuzz setup lint benchmark docs docs-serve clean

demo: setup
	$(BIN)/steadynet demo

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "steadynet needs Python 3.10 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "setuptools>=77"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	rm -f $(VENV)/.setup-*
	touch $@

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

# the time of a training step, the strength of its inner search, and what a busy machine costs; half an hour, as two
# small networks are trained the first time
benchmark: setup
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/inner_search.py
	$(BIN)/python benchmarks/busy_machine.py

# the documentation as a site that needs no server and no network: open site/index.html
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

clean:
	rm -rf $(VENV) build demo runs site .mypy_cache .ruff_cache .pytest_cache .hypothesis
