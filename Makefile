# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: venv demo test test-long lint clean

venv: $(STAMP)

# torch first and pinned: a range would pull the newest build with gigabytes of CUDA.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e '.[dev,export]'
	touch $@

demo: venv
	$(BIN)/fgmix demo --out demo

test: venv
	$(BIN)/pytest -n 2

test-long: venv
	$(BIN)/pytest -n 2 -m 'long or not long'

lint: venv
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy

clean:
	rm -rf $(VENV) demo
