# make tune   set up and tune a real model (the main job)
# make test   set up and pass the tests
# make install makes .venv with everything that tests and demos need
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install tune test check clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else f"Python 3.11 to 3.13 is needed, $(PYTHON) is {v[0]}.{v[1]}: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): torch 2.13 (a CPU wheel where pip finds one, else what PyPI has for this system: up to 3 GB), ONNX Runtime, OpenVINO"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

tune: install
	$(BIN)/ironlaw tune demo:digits

test: install
	$(BIN)/python -m pytest

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .ironlaw .pytest_cache .mypy_cache .ruff_cache
