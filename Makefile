# Every target sets up what it needs; on a fresh machine `make demo` and `make test` are all there is to type.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Quoted everywhere: the checkout may live under a path with spaces.
STAMP := $(VENV)/.installed

.PHONY: demo test test-fast test-pure fuzz-native fuzz-guided fuzz chaos kills check format interop bench bench-quick browser watch serve dist clean mutants

$(STAMP): pyproject.toml constraints.txt hatch_build.py $(wildcard aerobee/native/*.pyx aerobee/native/*.pxd)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Aerobee needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all,dev]'
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/python -m aerobee demo

# No test below needs Maven, Go, Node, npm or cargo. Spark tests run apart, in the folders that have any.
test: $(STAMP)
	$(BIN)/python -m pytest -q -n 3 --dist loadfile -m "not spark"
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m spark tests/docs tests/examples tests/spark

test-fast: $(STAMP)
	$(BIN)/python -m pytest -q -n 2 -m "not slow and not spark"

# Odd input of five kinds against a whole broker; CASES= and SEED= to run longer or again.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz.run --cases $(or $(CASES),100000) --seed $(or $(SEED),1)

# Bugs put into a copy, one at a time: do the tests notice? Hours for everything: PACKAGE=client SAMPLE=60 SEED=1 JOBS=2.
mutants: $(STAMP)
	nice $(BIN)/python -m tools.mutants $(if $(PACKAGE),--package $(PACKAGE)) $(if $(SAMPLE),--sample $(SAMPLE)) \
		--seed $(or $(SEED),1) --jobs $(or $(JOBS),1)

# The same without the compiled lane, which Spark's tests do not touch.
test-pure: $(STAMP)
	AEROBEE_NATIVE=0 $(BIN)/python -m pytest -q -n 3 --dist loadfile -m "not spark"

# The compiled lane under AddressSanitizer and UBSan, with broken frames; CASES= and SEED= as above.
fuzz-native: $(STAMP)
	$(BIN)/python -m tests.native.fuzz --cases $(or $(CASES),100000) --seed $(or $(SEED),1)

# Kills and power cuts under load, for five minutes; `make chaos ROUNDS=100` for so many of each kind in each flush mode.
chaos: $(STAMP)
	nice $(BIN)/python -m tests.chaos $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED))

# The same led by libFuzzer to what it has not reached yet, SECONDS= long; needs clang (Debian: clang-14, libclang-rt-14-dev).
# What it learned stays in .fuzz-corpus for the next run.
fuzz-guided: $(STAMP)
	@$(BIN)/python -m pip install --quiet -c constraints.txt atheris
	CC=$${CC:-$$(command -v clang || command -v clang-14)} $(BIN)/python -m tests.native.guided --seconds $(or $(SECONDS),300)

check: $(STAMP)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

format: $(STAMP)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

# The real peers: needs Java 17, Maven, Go, Node, npm, Rust with cargo and a C compiler; says which is missing and fails.
interop: $(STAMP)
	$(BIN)/python -m pytest -q tests/interop -m "not long"

# All kills of Spark's drivers, executors, workers and of brokers below them, a quarter of an hour.
kills: $(STAMP)
	$(BIN)/python -m pytest -q tests/interop/test_lake_kills.py tests/interop/test_sink_kills.py

# The console in Debian's chromium, driven by Playwright; needs npm for axe-core, and apt-get where chromium is missing.
# AEROBEE_SHOTS=DIR keeps screenshots to look at.
browser: $(STAMP)
	@$(BIN)/python -m pip install --quiet -c constraints.txt playwright
	@test -f .browser/node_modules/axe-core/axe.min.js || npm install --silent --no-audit --no-fund --prefix .browser axe-core@4.14.0
	@test -x $${AEROBEE_CHROMIUM:-/usr/bin/chromium} || apt-get install -y chromium
	$(BIN)/python -m pytest -q tests/browser

# Prometheus itself against both brokers: installs Debian's package where it is missing; Java 17 and Maven as above.
watch: $(STAMP)
	@command -v promtool >/dev/null && command -v prometheus >/dev/null || \
		(apt-get update -qq && apt-get install -y --no-install-recommends prometheus)
	$(BIN)/python -m pytest -q tests/watch

bench: $(STAMP)
	$(BIN)/python -m benchmarks.compare

bench-quick: $(STAMP)
	$(BIN)/python -m benchmarks.quick

serve: $(STAMP)
	$(BIN)/python -m aerobee serve

dist: $(STAMP)
	$(BIN)/python -m build

clean:
	rm -rf build dist .mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .interop
