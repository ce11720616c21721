# `make demo` and `make test` do all the set-up that they need. A second run takes seconds.

BACKEND ?= auto
BIN := .venv/bin
# Where no backend is asked for, the one that is installed will do.
ifeq ($(origin BACKEND),file)
BACKEND := $(firstword $(patsubst .venv/.installed-%,%,$(wildcard .venv/.installed-*)) auto)
endif
STAMP := .venv/.installed-$(BACKEND)
DEMO_MODEL := from veriloop_tui.registry import *; \
  print(resolve("smollm2", read_registry(registry_file())).path)

.PHONY: install demo test lint check format bench constraints clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/install.sh
	@scripts/install.sh $(BACKEND)
	@rm -f .venv/.installed-*
	@touch $@

demo: install
	$(BIN)/veriloop demo

test: install
	$(BIN)/python -m pytest

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Each prints its numbers; the engine's are taken with the demo's model.
bench: install
	@set -e; for file in benchmarks/bench_*.py; do \
	  name=$$(basename "$$file" .py); set --; \
	  [ "$$name" != bench_engine ] || set -- "$$($(BIN)/python -c '$(DEMO_MODEL)')"; \
	  echo "== $$name"; $(BIN)/python -m "benchmarks.$$name" "$$@"; \
	done

# Exact versions of all that is installed, for others to install the same.
constraints: install
	{ echo "# Written by 'make constraints'; the versions that the tests run with."; \
	  $(BIN)/python -m pip freeze --disable-pip-version-check --exclude-editable \
	  | sed -E 's/ @ .*//' | grep -E '^[A-Za-z0-9._-]+==' | LC_ALL=C sort -f; } > constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
