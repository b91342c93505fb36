# The front door. Every target makes what it needs: a fresh clone wants only Python >= 3.11 and make.
#
# make PYTHON=python3.13 run            another Python
# make VENV=/var/tmp/venv run           the virtual environment elsewhere
# make test PYTEST="tests/unit -x"      some of the tests
#
# Where the sources cannot be written, everything that is made goes to MADE: the virtual environment, the agent
# CLIs, caches. No name of a directory is a target, since one with a space in it could not be.
PYTHON ?= python3
MADE   := $(shell test -w . && echo . || echo "$${XDG_CACHE_HOME:-$$HOME/.cache}/holdfast/$$(pwd -P | cksum | cut -d ' ' -f 1)")
VENV   ?= $(if $(filter .,$(MADE)),.venv,$(MADE)/venv)
RUN    := "$(VENV)"/bin
PYTEST ?=
# Three more than there are cores: tests wait a third of their time.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 3)

# What is compiled is kept, whatever the caller has set: each of the tests' processes would compile it again.
export PYTHONDONTWRITEBYTECODE :=

ifneq ($(MADE),.)
ifeq ($(wildcard .agents-cli),)
export HOLDFAST_AGENTS_CLI            ?= $(MADE)/agents-cli
endif
export HYPOTHESIS_STORAGE_DIRECTORY   ?= $(MADE)/hypothesis
export MYPY_CACHE_DIR                 ?= $(MADE)/mypy
export PYTHONPYCACHEPREFIX            ?= $(MADE)/pycache
export RUFF_CACHE_DIR                 ?= $(MADE)/ruff
endif

.PHONY: help run test check lint types unit deep agents chaos bench bench-board docs docs-site pins clean
help:                             ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 13

run: for-run                      ## install and start everything, with three tasks as an example
	@exec $(RUN)/holdfast up --demo

test: for-test tools-for-tests    ## every promise once, with the real codex, PostgreSQL, browser and every sandbox backend
	@$(RUN)/pytest -n $(WORKERS) --dist worksteal $(PYTEST); status=$$?; $(RUN)/python -m tools.get_packages --missing && exit $$status

check: lint types unit            ## before every commit: under a minute
lint: for-test
	$(RUN)/ruff format --check . && $(RUN)/ruff check . && $(RUN)/codespell
types: for-test
	$(RUN)/mypy src tests tools bench examples
unit: for-test
	$(RUN)/pytest tests/unit tests/property -q -n $(WORKERS) --dist worksteal

deep: for-test tools-for-tests    ## what `make test` tries once, again and more often; with agents and chaos; writes docs/records/
	$(RUN)/pytest -n $(WORKERS) --dist worksteal -m deep --hypothesis-profile=deep --record-deep docs/records/deep.json; result=$$?; $(RUN)/python -m tools.records deep; exit $$result
	$(MAKE) agents chaos

agents: for-test tools-for-tests  ## every fault with every agent CLI, in some 20 minutes; writes docs/reference/agents.md
	$(RUN)/python -m tools.get_agents --records
	HOLDFAST_RECORD_AGENTS=tests/agents/results.json $(RUN)/pytest tests/agents -n 2 --dist worksteal -m "matrix or not matrix"
	$(RUN)/python -m tools.reference

chaos: for-test                   ## the board while everything is killed with -9, in some 10 minutes; writes tests/fault/board_chaos.json
	$(RUN)/python -m tests.support.board_chaos --kills 100 --seed 1 --seed 2 --seed 3 --record tests/fault/board_chaos.json

bench: for-bench tools-for-tests  ## side by side with the real codex, srt and bubblewrap; writes bench/results/
	$(RUN)/python -m tools.get_agents srt
	$(RUN)/python -m bench

bench-board: for-bench tools-for-tests  ## the board side by side with the real Hermes; writes bench/results/
	$(RUN)/python -m bench.board

docs: for-test                    ## regenerate docs/reference and the drawing of rooms; fail if that changed a file
	$(RUN)/python -m tools.reference
	$(RUN)/python -m tools.rooms
	git diff --exit-code docs/reference docs/architecture.md

docs-site: for-docs               ## build the documentation site into build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(RUN_DOCS)/mkdocs build --strict --site-dir "$(abspath $(MADE))/build/site" && echo "$(abspath $(MADE))/build/site/index.html"

pins: for-test                    ## pin the newest versions that pyproject.toml and requirements/*.in allow
	$(RUN)/python -m tools.pins

clean:
	rm -rf "$(VENV)" "$(VENV)-docs" .agents-cli .codex .venv-swerex .mypy_cache .ruff_cache .hypothesis build src/*.egg-info

.PHONY: tools-for-tests
tools-for-tests: for-test
	$(RUN)/python -m tools.get_packages
	$(RUN)/python -m tools.get_agents
	$(RUN)/python -m tools.get_hermes

# Quick when everything is there; a changed pin installs again. A Python that is named is the one that is used.
INSTALL = @"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer: make PYTHON=python3.11")' \
	&& "$(PYTHON)" tools/environment.py "$(VENV)" $(1) $(if $(filter file,$(origin PYTHON)),,--exactly)

# An environment of its own: nothing of the site is needed for anything else.
DOCS     := $(VENV)-docs
RUN_DOCS := "$(DOCS)"/bin
.PHONY: for-docs
for-docs:
	@"$(PYTHON)" tools/environment.py "$(DOCS)" docs

.PHONY: for-run for-test for-bench .venv/run .venv/test .venv/bench
for-run:
	$(call INSTALL,run)
for-test:
	$(call INSTALL,test)
for-bench:
	$(call INSTALL,bench)
.venv/run: for-run
.venv/test: for-test
.venv/bench: for-bench

.PHONY: mutations
mutations: for-test tools-for-tests  ## promises broken on purpose: their tests must notice; writes docs/records/mutations.md
	$(RUN)/python -m tools.mutate
