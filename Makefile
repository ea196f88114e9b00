# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LOWEST := $(VENV)-lowest

.PHONY: venv bench demo docs lint pictures test test-long test-method test-lowest coverage clean

venv: $(STAMP)

# torch first and pinned: a range would pull the newest build with gigabytes of CUDA.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e '.[dev,export,weights,peft,browser]'
	$(BIN)/pip install -q -c constraints.txt --no-deps ramanchada2  # only its spectra are read; it pins an older pandas
	touch $@

demo: venv
	$(BIN)/fgmix demo --out demo

# The site in docs/_build; a warning is an error. `make test` builds it, too.
docs: venv
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build

# The pictures of the docs, from a small sweep that is trained first if it is not there.
SWEEP ?= pictures-sweep
pictures: venv
	$(BIN)/python docs/pictures/make.py $(SWEEP)

# Speed, as ratios to ERM, to DomainBed's way or to a literal one; policy needs 10 GB for its last size.
bench: venv
	for name in data cache eval 'eval --backbone resnet18 --image-sizes 64 --models 1' 'layout resnet18' 'pieces resnet18' checkpoint sweep step policy growth run stacked domainbed plan launches memory start; do $(BIN)/python -m benchmarks $$name || exit; done

lint: venv
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/mypy

# Benchmarks count the CPU time of one thread. Tests run in two processes for two cores, whose children must not start threads, either.
bench test test-long test-method test-lowest coverage: export OMP_NUM_THREADS = 1

test: lint
	$(BIN)/pytest -n 2

# While you write a method: `make test-method NAME=coral`, its own tests and its part of the contract, in seconds.
test-method: venv
	$(BIN)/pytest -q $(wildcard tests/algorithms/test_$(NAME).py) tests/algorithms/test_contract.py -k 'test_$(NAME) or [$(NAME)-'

test-long: lint
	$(BIN)/pytest -n 2 -m 'long or not long'

coverage: venv
	$(BIN)/pytest -n 2 --cov --cov-report=term

# The oldest versions that pyproject.toml allows, in an environment of their own. Old versions warn about each other: here
# a warning is no error.
test-lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install -q -c constraints-lowest.txt torch
	$(LOWEST)/bin/pip install -q -c constraints-lowest.txt -e '.[dev,export]'
	$(LOWEST)/bin/pytest -n 2 -W default

clean:
	rm -rf $(VENV) $(LOWEST) demo
