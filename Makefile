# The front door: `make demo` and `make test` work on a fresh Debian 12 or Ubuntu 24.04; `make help` lists the rest.
# Build trees are CMake presets: build/<preset>. Everything here can also be done with cmake and ctest alone (CONTRIBUTING.md).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

JOBS ?= $(shell nproc)
# Most tests wait for each other's ranks and for time to pass: with one for each core these stand still for half of it.
TEST_JOBS ?= $(shell expr 3 \* $(JOBS))
FUZZ_SECONDS ?= 60
CTEST_FLAGS ?=
# For trees that are not there yet, as -DNITINOL_CUDA_TYPES="kFloat32;kBfloat16": kernels take most of the time.
CMAKE_FLAGS ?=

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## /\1|/' | column -t -s '|'

.PHONY: demo
demo: packages ## Build the benchmark and run every collective with 8 ranks: on GPUs where there are any, else on virtual ones
	@scripts/demo.sh

.PHONY: test
test: packages build/vgpu/build.ninja ## Build on virtual GPUs and run all tests; where CUDA 13 is installed, build for it too
	cmake --build --preset vgpu -j $(JOBS)
	scripts/run_tests.sh vgpu -j $(TEST_JOBS) $(CTEST_FLAGS)
	@if scripts/find_nvcc.sh >/dev/null; then $(MAKE) cuda; else echo "The CUDA flavour was not built."; fi

.PHONY: vgpu
vgpu: packages build/vgpu/build.ninja ## Build the library for virtual GPUs in build/vgpu
	cmake --build --preset vgpu -j $(JOBS)

.PHONY: cuda
cuda: packages build/cuda/build.ninja ## Build the library for CUDA in build/cuda (needs CUDA 13, no GPU)
	cmake --build --preset cuda -j $(JOBS)

.PHONY: asan
asan: packages build/asan/build.ninja ## Run the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake --build --preset asan -j $(JOBS)
	scripts/run_tests.sh asan -j $(TEST_JOBS) $(CTEST_FLAGS)

.PHONY: tsan
tsan: packages build/tsan/build.ninja ## Run the tests under ThreadSanitizer
	cmake --build --preset tsan -j $(JOBS)
	scripts/run_tests.sh tsan -j $(TEST_JOBS) $(CTEST_FLAGS)

.PHONY: fuzz
fuzz: packages packages-fuzz build/fuzz/build.ninja ## Run every fuzz target for FUZZ_SECONDS (60)
	cmake --build --preset fuzz -j $(JOBS) --target $(basename $(notdir $(wildcard tests/fuzz/fuzz_*.cc)))
	scripts/run_fuzzers.sh build/fuzz $(FUZZ_SECONDS)

.PHONY: lint
lint: packages packages-lint build/lint/build.ninja ## Check the format of all files and run clang-tidy on what changed since its last run
	scripts/lint.py format
	scripts/lint.py tidy --build build/lint -j $(JOBS)

.PHONY: format
format: packages-lint ## Format all C, C++ and CUDA files in place
	scripts/lint.py format --fix

.PHONY: install
install: vgpu ## Install the virtual-GPU flavour under PREFIX (/opt/nitinol)
	cmake --install build/vgpu --strip --prefix $(or $(PREFIX),/opt/nitinol)

.PHONY: clean
clean: ## Remove the build trees of the presets
	rm -rf build/vgpu build/cuda build/asan build/tsan build/fuzz build/lint

.PHONY: packages packages-lint packages-fuzz
packages: ## Install what building and testing need, with apt; touches no network when all is there
	@scripts/install_packages.sh build
packages-lint:
	@scripts/install_packages.sh lint
packages-fuzz:
	@scripts/install_packages.sh fuzz

build/%/build.ninja: CMakePresets.json
	cmake --preset $* $(CMAKE_FLAGS)
	@touch $@
