# `make run` starts everything, `make test` checks everything. Both create .venv first.

# The first interpreter that is new enough: .python-version's through pyenv or uv, else any on the PATH.
PYTHON ?= $(shell for p in python3.13 python3.14 python3.12 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1 && { command -v $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := rules addon sidecar cli tests

.PHONY: run demo test test-clients lint bench fuzz soak faults models clean

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "turnout: no Python 3.12 or newer found. Install one (apt install python3.13, brew install python@3.13," >&2; \
		echo "pyenv install 3.13 or uv python install 3.13) and run make again, or pass PYTHON=/path/to/python3.13." >&2; \
		exit 1; fi
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install -q --group dev -e '.[local]'
	@touch $@

models: $(VENV)/.installed
	$(BIN)/turnout models pull

run: models
	$(BIN)/turnout up

demo: models
	$(BIN)/turnout demo

lint: $(VENV)/.installed
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

# Side by side, file by file; what measures time runs alone afterwards.
test: lint models
	$(BIN)/pytest -n auto --dist loadfile -m "not quiet"
	$(BIN)/pytest -m quiet

# Real client programs, pinned, installed into $(CLIENTS) (3 GB); writes the matrix of docs/tools.md.
CLIENTS ?= .clients
test-clients: $(VENV)/.installed
	PYTHON="$(BIN)/python" sh tests/clients/install.sh $(CLIENTS)
	TURNOUT_TEST_CLIENTS=$(CLIENTS) TURNOUT_TEST_CODEX=$(abspath $(CLIENTS))/npm/node_modules/.bin/codex \
		$(BIN)/pytest tests/clients

bench: $(VENV)/.installed
	$(BIN)/turnout bench
	$(BIN)/turnout bench --turns

# Ten minutes of broken and odd bodies against the reader; finds are printed with their seed.
fuzz: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python tests/fuzz/fuzz_reading.py --minutes 10

# Five minutes of mixed load, kills and rule edits on local engines; counts what was lost.
soak: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python tests/soak/soak.py 300

# Some ten minutes of load and faults against real processes; the figures go into the page. As root on Linux.
faults: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python tests/faults/run.py --write docs/reliability.md

clean:
	rm -rf $(VENV) .clients .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
