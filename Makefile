# make test        everything but the slow tests          make lint        ruff and mypy
# make test-slow   the slow tests alone                   make quickstart  the whole road on this machine
# make test-faults kills, full disks, fuzzed input: up to an hour
# make test-browser  the report in a real browser; Chromium must be there (apt install chromium)
#
# Each makes .venv first, once, from Python 3.12, and again when a requirement file changes. An interrupted set-up is
# simply taken up by the next call: the stamp .venv/.ready is written last.

PYTHON ?= python3.12
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
REQUIREMENTS := requirements/cpu.txt requirements/cpu-no-deps.txt requirements/dev.txt

# One thread a process: the engine and the actor share the cores, and unpinned threads slow both down.
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1

.DELETE_ON_ERROR:
.PHONY: setup test test-slow test-faults test-browser lint quickstart clean

setup: $(READY)

test: $(READY)
	$(BIN)/python -m pytest -m "not slow and not browser and not faults" $(PYTEST_ARGS)

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

test-faults: $(READY)
	$(BIN)/python -m pytest -m faults -s $(PYTEST_ARGS)

test-browser: $(READY)
	$(PIP) install -r requirements/browser.txt
	$(BIN)/python -m pytest -m browser $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy

quickstart: $(READY)
	$(BIN)/seirenes quickstart $(QUICKSTART_ARGS)

$(READY): $(REQUIREMENTS) pyproject.toml setup.py
	@$(PIP) --version >/dev/null 2>&1 || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null || { \
	    echo "Python 3.12 is needed, and '$(PYTHON)' is not one. Install it (pyenv install 3.12, or your system's" >&2; \
	    echo "python3.12 and python3.12-venv packages), or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12" >&2; \
	    exit 1; } && \
	  $(PYTHON) -m venv --clear $(VENV); }
	$(PIP) install -r requirements/cpu.txt -r requirements/dev.txt
	$(PIP) install --no-deps -r requirements/cpu-no-deps.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
