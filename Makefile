# Everything a person does with this repository. `make` alone says what there is.
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTHON ?= python3
export UV_PYTHON_DOWNLOADS := never

.PHONY: help setup run test check fmt bench faults lock clean

help:  ## list what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | column -t -s '	'

setup: $(READY)  ## make .venv with everything, pinned and hashed
	@$(BIN)/python -m compileall -q src

$(READY): requirements.lock requirements-uv.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "penstock needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-uv.lock
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock requirements-uv.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	touch $@

run: setup  ## train CartPole with two actors and watch (ONCE=1: end when it is solved)
	$(BIN)/penstock train CartPole-v1 --actors 2 $(if $(ONCE),,--keep-going)

test: setup  ## all tests, two files at a time (they mostly wait)
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: setup  ## ruff, mypy strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: setup  ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## measure against peers (see bench/README.md)
	$(BIN)/python -m bench $(ARGS)

faults: setup  ## the kill campaigns at length; writes docs/faults.md
	$(BIN)/python -m tests.faults $(ARGS)


lock:  ## resolve the dependencies anew
	$(BIN)/uv pip compile --quiet --python $(BIN)/python --universal --generate-hashes --no-header --no-emit-index-url --upgrade \
	  --extra classic --extra box2d --extra play --extra plot --extra kafka --group dev pyproject.toml -o requirements.lock
	echo uv | $(BIN)/uv pip compile --quiet --python $(BIN)/python --generate-hashes --no-header --no-emit-index-url --upgrade - -o requirements-uv.lock

clean:  ## remove what setup and tests made
	rm -rf $(VENV) .venvs .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
