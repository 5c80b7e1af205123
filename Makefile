# The front door for people: `make build`, `make demo`, `make test`. Everything below it is CMake
# with Ninja.
SHELL := /bin/bash
BUILD_DIR ?= build
PRESET ?= release
TORCH_DIR ?= $(CURDIR)/.deps/torch
export TORCH_DIR
JOBS ?= $(shell nproc)
# CUDA=1: also the plugin lib/libmegatron_cuda.so (needs nvcc 13). `make deps CUDA=run` fetches what
# LibTorch needs to run on a GPU (2 GB).
CUDA ?=
export CUDA

# ARROW=1: also the plugin lib/libmegatron_arrow.so, which reads Parquet.
ARROW ?=
export ARROW

# CI=true: warnings are errors.
CI ?=
export CI
PREFIX ?= /usr/local

.PHONY: build deps test test-nightly test-parity test-mutants test-scripts test-arm lint
.PHONY: lint-changed
.PHONY: lint-format asan tsan fuzz demo examples embed tutorial bench install clean help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
	  awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Downloads are kept in ~/.cache/megatron; .deps/ has hard links to what is unpacked there.
deps: ## Install missing Debian packages and the pinned LibTorch in .deps/ (CUDA=run: also for GPUs)
	@scripts/bootstrap.sh

$(BUILD_DIR)/build.ninja: CMakeLists.txt CMakePresets.json
	@cmake --preset $(PRESET) -B $(BUILD_DIR) -DTORCH_DIR=$(TORCH_DIR)

build: deps ## Build build/bin/megatron (CUDA=1: with the plugin for NVIDIA GPUs)
	@$(MAKE) --no-print-directory $(BUILD_DIR)/build.ninja
	@$(if $(CI),cmake --preset $(PRESET) -B $(BUILD_DIR) -DTORCH_DIR=$(TORCH_DIR) >/dev/null)
	@$(if $(CUDA),cmake -B $(BUILD_DIR) -DMEGATRON_CUDA=ON)
	@$(if $(ARROW),cmake -B $(BUILD_DIR) -DMEGATRON_ARROW=ON)
	@cmake --build $(BUILD_DIR) -j $(JOBS) --target megatron_all

test: build ## Build and run the fast tests (at most five minutes)
	@cmake --build $(BUILD_DIR) -j $(JOBS) --target megatron_tests
	@ctest --test-dir $(BUILD_DIR) --output-on-failure -j $(JOBS) -LE nightly

# A hundred runs killed at random moments, every layout of every model, bubbles by the clock, lines
# of 1 GB.
test-nightly: build ## Run the tests that take too long for every day
	@cmake --build $(BUILD_DIR) -j $(JOBS) --target megatron_tests
	@ctest --test-dir $(BUILD_DIR) --output-on-failure -L nightly

# The packages are in a virtual environment of their own, which all clones of a user share
# (tests/parity/README.md).
test-parity: build ## Compare with transformers, megatron-core and the tokenizer packages
	@tests/parity/run.sh

# Plants some hundred one-line faults; the tests must notice 95 % of them. ROOM=base: those of one
# room.
test-mutants: deps ## Plant faults and check that the tests notice them, several hours (ROOM=base)
	@tests/mutants/run.py --jobs $(JOBS) $(if $(ROOM),--room $(ROOM)) $(if $(KEEP),--keep $(KEEP))

# The scripts are published for Megatron-LM. UPDATE=1 records what happens.
test-scripts: build ## Run the flags of published launch scripts, made small (UPDATE=1: record)
	@tests/scripts/run.py --program $(BUILD_DIR)/bin/megatron $(if $(UPDATE),--update)

# ROOMS="parallel ops": only the tests of these rooms.
test-arm: ## Cross-build for 64-bit ARM and run tests under qemu (the rooms without LibTorch)
	@JOBS=$(JOBS) tests/arm/run.sh $(ROOMS)

lint: ## Check format, line length and names, and look for bugs with clang-tidy, in the whole tree
	@LINT=1 scripts/bootstrap.sh
	@JOBS=$(JOBS) scripts/lint.sh

lint-format: ## The format and line length of every source, without clang-tidy
	@scripts/lint.sh format

lint-changed: ## The same, with clang-tidy only on what changed since main or the last release
	@LINT=1 scripts/bootstrap.sh
	@JOBS=$(JOBS) scripts/lint.sh changed

asan: deps ## Run the tests of the rooms without LibTorch under AddressSanitizer and UBSan
	@JOBS=$(JOBS) tests/sanitizers/run.sh asan

tsan: deps ## Run the tests with threads under ThreadSanitizer (ROOMS="base parallel": only these)
	@JOBS=$(JOBS) tests/sanitizers/run.sh tsan $(ROOMS)

# A find is a new file in tests/fuzz/finds/, which the fast test `fuzz` then reads.
fuzz: deps ## Run the fuzz targets of tests/fuzz with libFuzzer (TARGET="encode npy" SECONDS=60)
	@JOBS=$(JOBS) SECONDS_EACH=$(if $(filter command% environment%,$(origin SECONDS)),$(SECONDS),60) \
	  tests/fuzz/run.sh $(TARGET)

install: build ## Install the program, libraries, headers and the CMake package under PREFIX
	@cmake --install $(BUILD_DIR) --prefix $(PREFIX)

embed: build ## Build examples/embed against an installed copy, as a project of your own would
	@BUILD_DIR=$(BUILD_DIR) examples/embed/run.sh

demo: build ## Train a small GPT on real English for five to eight minutes and let it speak
	@examples/demo/run.sh

examples: build ## Run the recipes of examples/ for a few steps
	@examples/run.sh

tutorial: build ## Run every command of docs/tutorial.md
	@scripts/run_tutorial.sh

# The contenders have the same shapes.
bench: build ## Time training steps beside PyTorch, half an hour (QUICK=1: minutes, FULL=1: an hour)
	@bench/run.sh $(if $(QUICK),--quick) $(if $(FULL),--full) $(if $(LLMC),--llmc $(LLMC))

clean: ## Remove the build folder
	@rm -rf $(BUILD_DIR)
