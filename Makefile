# SPDX-License-Identifier: Apache-2.0
# Two commands matter: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
ifeq ($(strip $(PYTHON)),)
PYTHON = python3
endif
VENV ?= .venv
RUN = $(abspath $(VENV))/bin/python
export VENV := $(abspath $(VENV))

# Recordings of real and simulated mechanisms, where somebody has put them beside the project.
ifneq ($(wildcard ../shared/data),)
export MULTIBODY_ESTIMATION_DATA ?= $(abspath ../shared/data)
endif

# Nothing that is started here meets other ROS 2 systems, or a second run beside it: loopback only, and a domain of its own.
export ROS_AUTOMATIC_DISCOVERY_RANGE ?= LOCALHOST
export ROS_DOMAIN_ID ?= $(shell $(PYTHON) -c 'import os; print(1 + os.getpid() % 100)' 2>/dev/null)

.PHONY: help demo test build lint format bench soak docs clean
.NOTPARALLEL:

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1~/p' Makefile | column -t -s '~'

demo:  ## set up, then identify a simulated Furuta pendulum over ROS 2
	@$(PYTHON) tools/set_up.py --total 4
	@$(RUN) -m multibody_estimation.cli demo

build:  ## set up for development: packages, messages, kernels
	@$(PYTHON) tools/set_up.py --extras test

test: build  ## the whole suite
	@$(RUN) -m pytest -n 2 --dist loadfile -m 'not alone'
	@$(RUN) -m pytest -m alone

lint: build  ## style, types
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy multibody_estimation

format: build  ## put the style right
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

bench:  ## speed and accuracy beside the peers, all in one table
	@$(PYTHON) tools/set_up.py --extras bench
	@$(RUN) -m benchmarks

soak: build  ## load and faults on ROS 2, one minute each
	@$(RUN) -m benchmarks.ros_load

docs:  ## the guide, into site/
	@$(PYTHON) tools/set_up.py --extras docs
	@$(RUN) -m mkdocs build --strict

clean:  ## remove the virtual environment and everything that was built
	rm -rf $(VENV) build site benchmarks/results multibody_estimation.egg-info

.DEFAULT:
	@echo "There is no target '$@'. \`make help\` lists what there is." >&2; exit 2
