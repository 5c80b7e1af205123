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

# SPLIT=1: test, asan and tsan share the tests as .ci/run wants it (tests/sanitizers/rooms.sh).
# FULL=1: the sanitizers run all of theirs nevertheless.
SPLIT ?=
FULL ?=
export SPLIT FULL
PREFIX ?= /usr/local

.PHONY: build configure deps test room test-nightly test-parity test-mutants test-scripts test-arm
.PHONY: lint lint-changed
.PHONY: lint-format asan tsan fuzz demo examples embed extension tutorial bench install clean help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
	  awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Downloads are kept in ~/.cache/megatron; .deps/ has hard links to what is unpacked there.
deps: ## Install missing Debian packages and the pinned LibTorch in .deps/ (CUDA=run: also for GPUs)
	@scripts/bootstrap.sh

# What the build folder must have been configured with. One configure sets all that is missing.
OPTIONS = $(if $(CI),MEGATRON_WERROR) $(if $(CUDA),MEGATRON_CUDA) $(if $(ARROW),MEGATRON_ARROW)

$(BUILD_DIR)/build.ninja: CMakeLists.txt CMakePresets.json
	@cmake --preset $(PRESET) -B $(BUILD_DIR) -DTORCH_DIR="$(TORCH_DIR)" $(OPTIONS:%=-D%=ON)

configure: deps
	@$(MAKE) --no-print-directory -s $(BUILD_DIR)/build.ninja
	@for option in $(OPTIONS); do \
	  grep -qE "^$$option:[A-Z]+=(ON|true)$$" $(BUILD_DIR)/CMakeCache.txt || \
	    exec cmake -B $(BUILD_DIR) $(OPTIONS:%=-D%=ON); \
	done

build: configure ## Build build/bin/megatron (CUDA=1: with the plugin for NVIDIA GPUs)
	@cmake --build $(BUILD_DIR) -j $(JOBS) --target megatron_all

test: build ## Build and run the fast tests (at most five minutes)
	@BUILD_DIR=$(BUILD_DIR) JOBS=$(JOBS) tests/run.sh

# FILTER="Attention*": as --gtest_filter.
room: configure ## Build and run the tests of one room and name its slowest (ROOM=nn, FILTER=)
	@$(if $(ROOM),,echo 'Name a room of src/megatron: make room ROOM=nn' >&2 && exit 2)
	@cmake --build $(BUILD_DIR) -j $(JOBS) --target $(ROOM)_tests
	@rm -rf $(BUILD_DIR)/test-times/room && status=0; OMP_NUM_THREADS=1 \
	  GTEST_OUTPUT=xml:$(BUILD_DIR)/test-times/room/$(ROOM).xml $(BUILD_DIR)/bin/$(ROOM)_tests \
	  --gtest_brief=1 $(if $(FILTER),--gtest_filter='$(FILTER)') || status=$$?; \
	  tests/slowest.py $(BUILD_DIR)/test-times/room 5; exit $$status

# A hundred runs killed at random moments, every layout of every model, bubbles by the clock, lines
# of 1 GB, the sanitizers on everything, and each source compiled by itself, which shows whether it
# includes what it uses.
test-nightly: build ## Run the tests that take too long for every day
	@cmake --build $(BUILD_DIR) -j $(JOBS) --target megatron_tests
	@ctest --test-dir $(BUILD_DIR) --output-on-failure -L nightly
	@$(MAKE) --no-print-directory asan tsan FULL=1 ROOMS=
	@$(MAKE) --no-print-directory build PRESET=dev BUILD_DIR=build-alone

# The packages are in a virtual environment of their own, which all clones of a user share
# (tests/parity/README.md).
test-parity: build ## Compare with transformers, megatron-core and the tokenizer packages
	@tests/parity/run.sh

# Plants some hundred one-line faults; the tests must notice 95 % of them. ROOM=base: those of one
# room.
test-mutants: deps ## Plant faults and check that the tests notice them, several hours (ROOM=base)
	@tests/mutants/run.py --jobs $(JOBS) $(if $(ROOM),--room $(ROOM)) $(if $(KEEP),--keep $(KEEP))

# The scripts are published for Megatron-LM. UPDATE=1 records what happens, JOBS=4 runs four at a
# time.
test-scripts: build ## Run the flags of published launch scripts, made small (UPDATE=1: record)
	@tests/scripts/run.py --program $(BUILD_DIR)/bin/megatron $(if $(UPDATE),--update) \
	  --jobs $(if $(filter command% environment%,$(origin JOBS)),$(JOBS),2)

# ROOMS="parallel ops": only the tests of these rooms.
test-arm: ## Cross-build for 64-bit ARM and run tests under qemu (the rooms without LibTorch)
	@JOBS=$(JOBS) tests/arm/run.sh $(ROOMS)

lint: ## Check format, line length and names, and look for bugs with clang-tidy, in the whole tree
	@LINT=1 scripts/bootstrap.sh
	@JOBS=$(JOBS) scripts/lint.sh

lint-format: ## The format and line length of every source, without clang-tidy
	@scripts/lint.sh format

lint-changed: ## The same, with clang-tidy only on what changed (scripts/base_commit.sh: since when)
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

extension: build ## Build examples/extension against an installed copy, and train its family
	@BUILD_DIR=$(BUILD_DIR) examples/extension/run.sh

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
