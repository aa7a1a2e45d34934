# Needs make and a Python from 3.10 to 3.13; everything else is installed into .venv/ at the versions of constraints.txt.
#   make demo            tune a small model on generated data
#   make test            the test suite without the slow tests
# PYTHON=/path/to/python chooses the interpreter, WORKERS the number of test processes.

VENV := .venv
OLDEST := .venv-oldest
THIRDPARTY := .venv-thirdparty
FLOWER := .venv-flower-app
WORKERS ?= 2
OLDEST_TESTS ?= tests/lightning tests/resume tests/modules tests/tracking tests/test_imports.py
ARGS ?=

BIN = $(VENV)/bin
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check --no-input
SETUP_FILES = pyproject.toml constraints.txt
# Two processes of one thread beat one process of two threads on models this small. Compiled files are kept for the
# processes that tests start, whatever the environment says.
TEST_ENV = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 WANDB_MODE=offline PYTHONDONTWRITEBYTECODE=
# Each process takes its share in one piece, so that tests of a file have their fixtures once.
PYTEST = $(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: demo docs test test-all test-oldest test-resume test-thirdparty lint types coverage format benchmark guard clean help
.DEFAULT_GOAL := help
.NOTPARALLEL:

help:
	@echo "make demo         tune a small model on generated data, and make a report of it"
	@echo "make test         run the test suite without the slow tests"
	@echo "make test-all     run the test suite with the slow tests"
	@echo "make test-oldest  run the tests that meet Lightning on the oldest supported one"
	@echo "make test-resume  run the slow tests of killed and resumed runs"
	@echo "make test-thirdparty  train LightningModules of other packages, in an environment of their own"
	@echo "make test-flower  simulate exported Flower apps, in an environment of their own"
	@echo "make coverage     run the test suite and fail below 90 % coverage"
	@echo "make lint         check style; make format: put it right"
	@echo "make types        check types"
	@echo "make docs         build the site into site/, to open site/index.html"
	@echo "make benchmark    measure the speed (long; ARGS=--help says what there is)"
	@echo "make guard        fail if the speed has fallen below 0.8 of what is recorded (some minutes)"
	@echo "make clean        remove the environments, caches and what runs left behind"

demo: $(VENV)/.installed
	$(BIN)/fedhpo $(ARGS)

test: $(VENV)/.installed-dev
	$(PYTEST) $(ARGS)

test-all: $(VENV)/.installed-dev
	$(PYTEST) -m "not thirdparty" $(ARGS)

coverage: $(VENV)/.installed-dev
	$(PYTEST) --cov --cov-report=term --cov-fail-under=90 $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

# MkDocs' theme would print a warning about other versions of MkDocs.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)

# The suite sets threads itself, and starts processes without the settings of this one.
benchmark: $(VENV)/.installed-dev
	$(TEST_ENV) $(BIN)/python -m benchmarks.suite $(ARGS)

guard: $(VENV)/.installed-dev
	$(TEST_ENV) $(BIN)/python -m benchmarks.guard $(ARGS)

# What meets Lightning; OLDEST_TESTS=tests takes the whole suite.
test-oldest: $(OLDEST)/.installed
	$(TEST_ENV) $(OLDEST)/bin/python -m pytest -n $(WORKERS) $(OLDEST_TESTS) $(ARGS)

test-resume: $(VENV)/.installed-dev
	$(PYTEST) -m slow tests/resume $(ARGS)

test-thirdparty: $(THIRDPARTY)/.installed
	$(TEST_ENV) $(THIRDPARTY)/bin/python -m pytest -n $(WORKERS) -m thirdparty tests/modules/test_third_party.py $(ARGS)

test-flower: $(FLOWER)/.installed
	$(TEST_ENV) $(FLOWER)/bin/python -m pytest -m thirdparty tests/export/test_flower_simulation.py $(ARGS)

# One shell line that sets $$python to the interpreter to use, or says what is missing.
FIND_PYTHON = \
	for python in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python3.10); do \
		if "$$python" -c "import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))" \
			>/dev/null 2>&1; then break; fi; \
		python=; \
	done; \
	if [ -z "$$python" ]; then \
		echo "make: a Python from 3.10 to 3.13 with its venv module is needed, $(if $(PYTHON),PYTHON=$(PYTHON) \
	is not one,none is on the PATH): install one, or name it with make PYTHON=/path/to/python." >&2; exit 1; \
	fi

# $(call make_venv,folder): a working environment in the folder. One that works is kept, whoever made it. One that was
# never finished, or whose interpreter or pip is broken or outside the range, is made anew.
define make_venv
	@if [ -e $(1)/.unfinished ] || ! $(1)/bin/python -c \
		"import sys, pip; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))" >/dev/null 2>&1; then \
		$(FIND_PYTHON); \
		echo "make: creating $(1) with $$("$$python" --version)"; \
		rm -rf $(1) && mkdir $(1) && touch $(1)/.unfinished && "$$python" -m venv $(1); \
	fi
endef

# $(call install,folder,constraints,what): setuptools comes first, because the project and the one dependency that is
# published as source only are built with it instead of in a throw-away environment that no constraint reaches.
define install
	@echo "make: installing into $(1) (the first time takes a few minutes)"
	$(1)/bin/python $(PIP_INSTALL) -c $(2) setuptools
	$(1)/bin/python $(PIP_INSTALL) -c $(2) --no-build-isolation --use-pep517 $(3)
	@rm -f $(1)/.unfinished
endef

# $(call lay_over,file,folder): constraints.txt with the pins of a file in place of its own, as constraints.txt there.
define lay_over
	@awk -F '==' 'NR == FNR { print; pinned[$$1] = 1; next } !($$1 in pinned)' $(1) constraints.txt > $(2)/constraints.txt
endef

$(VENV)/.installed: $(SETUP_FILES)
	$(call make_venv,$(VENV))
	$(call install,$(VENV),constraints.txt,-e ".[report]")
	@touch $@

$(VENV)/.installed-dev: $(SETUP_FILES)
	$(call make_venv,$(VENV))
	$(call install,$(VENV),constraints.txt,-e ".[dev]")
	@touch $(VENV)/.installed $@

$(VENV)/.installed-docs: $(SETUP_FILES)
	$(call make_venv,$(VENV))
	$(call install,$(VENV),constraints.txt,-e ".[docs]")
	@touch $(VENV)/.installed $@

# Only what the suite needs is installed: the linters' own dependencies exclude what the oldest Lightning requires.
comma := ,
$(OLDEST)/.installed: $(SETUP_FILES) constraints-oldest.txt
	$(call make_venv,$(OLDEST))
	$(call lay_over,constraints-oldest.txt,$(OLDEST))
	$(call install,$(OLDEST),$(OLDEST)/constraints.txt,-e ".[report$(comma)joblib$(comma)bayes$(comma)features]" \
		build optuna-integration pandas pytest pytest-cov pytest-xdist)
	@touch $@

# torch comes first and alone: what the other packages ask for must find it there.
$(THIRDPARTY)/.installed: $(SETUP_FILES) constraints-thirdparty.txt
	$(call make_venv,$(THIRDPARTY))
	$(call lay_over,constraints-thirdparty.txt,$(THIRDPARTY))
	$(THIRDPARTY)/bin/python $(PIP_INSTALL) -c $(THIRDPARTY)/constraints.txt torch
	$(call install,$(THIRDPARTY),$(THIRDPARTY)/constraints.txt,-e ".[plot$(comma)joblib$(comma)thirdparty]" build pytest pytest-cov pytest-xdist)
	@touch $@

$(FLOWER)/.installed: $(SETUP_FILES) constraints-flower.txt
	$(call make_venv,$(FLOWER))
	$(call lay_over,constraints-flower.txt,$(FLOWER))
	$(call install,$(FLOWER),$(FLOWER)/constraints.txt,-e . "flwr[simulation]" pytest)
	@touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(THIRDPARTY) $(FLOWER) .venv-flower .venv-pfl build dist *.egg-info .coverage .coverage.* htmlcov .mypy_cache .pytest_cache .ruff_cache
	rm -rf site outputs multirun wandb lightning_logs checkpoints
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
