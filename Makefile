# Everything a person does with this repository. `make` alone says what there is.
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTHON ?= python3
export UV_PYTHON_DOWNLOADS := never

.PHONY: help setup run test check fmt bench faults lock clean page proto sanitize wheel

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

run: setup  ## start the platform, with a CartPole run (ONCE=1: end when it is solved; ARGS="--port 0")
	@$(NODE) && $(MAKE) --no-print-directory page || echo "training goes on without the page"
	$(BIN)/penstock up --train CartPole-v1 $(if $(ONCE),--once) $(ARGS)

test: setup page  ## all tests: the page's parts, then the rest, two files at a time (they mostly wait)
	cd ui && npm run --silent test
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: setup ui/node_modules/.ready  ## ruff, mypy strict, import-linter; of the page Biome, stale types, tsc
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd ui && npm run --silent check

fmt: setup  ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: setup  ## build the wheel penstock-client (docs/client.md) into dist/
	$(BIN)/uv build --quiet --wheel clients/python --out-dir dist

bench: setup  ## measure against peers (see bench/README.md)
	$(BIN)/python -m bench $(ARGS)

faults: setup  ## the kill campaigns at length; writes docs/faults.md
	$(BIN)/python -m tests.faults $(ARGS)

PAGE_SOURCES := $(shell find ui -path ui/node_modules -prune -o -type f -print 2>/dev/null)
PAGE         := src/penstock/server/page/index.html

NODE_WANTED  := the page needs npm and Node.js 20.19 or newer: apt-get install npm (Debian 13), or nodejs.org, then make page
NODE         := { node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' \
                  && npm --version; } >/dev/null 2>&1 || { echo "$(NODE_WANTED)"; false; }

page: $(PAGE)  ## build the web page (needs Node.js 20.19 or newer)

$(PAGE): ui/node_modules/.ready $(PAGE_SOURCES)
	cd ui && npm run --silent build

ui/node_modules/.ready: ui/package-lock.json
	@$(NODE)
	cd ui && npm ci --no-audit --no-fund
	touch $@

proto:  ## compile the messages of the gateway
	$(BIN)/python -m grpc_tools.protoc -Isrc/penstock/proto --descriptor_set_out=src/penstock/proto/penstock_v1.binpb \
	  src/penstock/proto/penstock_v1.proto

sanitize:  ## the C++ client's tests under the address, undefined and thread sanitizers
	cmake -S clients/cpp -B build/cpp-address -G Ninja -DPENSTOCK_SANITIZE=address,undefined
	cmake --build build/cpp-address --target penstock_tests && ctest --test-dir build/cpp-address --output-on-failure
	cmake -S clients/cpp -B build/cpp-thread -G Ninja -DPENSTOCK_SANITIZE=thread
	cmake --build build/cpp-thread --target penstock_tests && ctest --test-dir build/cpp-thread --output-on-failure

lock:  ## resolve the dependencies anew
	$(BIN)/uv pip compile --quiet --python $(BIN)/python --universal --generate-hashes --no-header --no-emit-index-url --upgrade \
	  --extra classic --extra box2d --extra play --extra plot --extra kafka --extra postgres --group dev pyproject.toml -o requirements.lock
	echo uv | $(BIN)/uv pip compile --quiet --python $(BIN)/python --generate-hashes --no-header --no-emit-index-url --upgrade - -o requirements-uv.lock

clean:  ## remove what setup and tests made
	rm -rf $(VENV) .venvs .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
