# The front door. Every target makes what it needs: a fresh clone wants only Python >= 3.11 and make.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin

.PHONY: help run test check lint types unit deep agents chaos bench bench-board docs pins clean
help:                             ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 13

run: $(VENV)/run                  ## install and start everything, with three tasks as an example
	@exec $(RUN)/holdfast up --demo

test: $(VENV)/test tools-for-tests  ## install what the tests need and try every promise once
	$(RUN)/pytest -n auto --dist worksteal

check: lint types unit            ## before every commit: under a minute
lint: $(VENV)/test
	$(RUN)/ruff format --check . && $(RUN)/ruff check . && $(RUN)/codespell
types: $(VENV)/test
	$(RUN)/mypy src tests tools bench examples
unit: $(VENV)/test
	$(RUN)/pytest tests/unit tests/property -q -n auto --dist worksteal

deep: $(VENV)/test tools-for-tests  ## what `make test` tries once, again and more often; with agents and chaos; writes docs/records/
	$(RUN)/pytest -n auto --dist worksteal -m deep --hypothesis-profile=deep --record-deep docs/records/deep.json; result=$$?; $(RUN)/python -m tools.records deep; exit $$result
	$(MAKE) agents chaos

agents: $(VENV)/test tools-for-tests  ## every fault with every agent CLI, in some 20 minutes; writes docs/reference/agents.md
	HOLDFAST_RECORD_AGENTS=tests/agents/results.json $(RUN)/pytest tests/agents -n 0 -m "matrix or not matrix"
	$(RUN)/python -m tools.reference

chaos: $(VENV)/test               ## the board while everything is killed with -9, in some 10 minutes; writes tests/fault/board_chaos.json
	$(RUN)/python -m tests.support.board_chaos --kills 100 --seed 1 --seed 2 --seed 3 --record tests/fault/board_chaos.json

bench: $(VENV)/bench tools-for-tests  ## side by side with the real codex; writes bench/results/
	$(RUN)/python -m bench

bench-board: $(VENV)/bench tools-for-tests  ## the board side by side with the real Hermes; writes bench/results/
	$(RUN)/python -m bench.board

docs: $(VENV)/test                ## regenerate docs/reference and fail if that changed a file
	$(RUN)/python -m tools.reference
	git diff --exit-code docs/reference

pins: $(VENV)/test                ## pin the newest versions that pyproject.toml and requirements/*.in allow
	$(RUN)/python -m tools.pins

clean:
	rm -rf $(VENV) .agents-cli .codex .venv-swerex .mypy_cache .ruff_cache .hypothesis build src/*.egg-info

.PHONY: tools-for-tests
tools-for-tests: $(VENV)/test
	$(RUN)/python -m tools.get_packages
	$(RUN)/python -m tools.get_agents
	$(RUN)/python -m tools.get_hermes

# Each stamp says: everything pinned in that file is installed. A changed pin installs again.
$(VENV)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	touch $@
$(VENV)/run: $(VENV)/python requirements/run.txt pyproject.toml
	$(RUN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/run.txt
	$(RUN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@
$(VENV)/test: $(VENV)/run requirements/test.txt
	$(RUN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/test.txt
	touch $@
$(VENV)/bench: $(VENV)/test requirements/bench.txt
	$(RUN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/bench.txt
	touch $@
