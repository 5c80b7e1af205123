#!/usr/bin/env bash
# Cross-builds for 64-bit ARM on an x86-64 Debian host, in build-aarch64/, and runs tests under
# qemu-user.
#   tests/arm/run.sh                the rooms without LibTorch
#   tests/arm/run.sh parallel ops   only the tests of these rooms
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build-aarch64
jobs=${JOBS:-$(nproc)}
rooms=("$@")
[ $# -gt 0 ] || rooms=(kernels base schedules config metrics tokenizers datasets)

ARCH=aarch64 TORCH_DIR='' scripts/bootstrap.sh
[ -e "$build/build.ninja" ] || cmake --preset aarch64 >/dev/null
cmake --build "$build" -j "$jobs" --target megatron "${rooms[@]/%/_tests}"

export QEMU_CPU=${QEMU_CPU:-neoverse-n1}
# This test limits the address space, which qemu-user ignores.
export GTEST_FILTER=-ThreadLimit.ThreadsWithoutMemoryAreAnErrorOfTheUser
qemu-aarch64 -L .deps/sysroot-aarch64 "$build/bin/megatron" --version
# A test that computes takes two places, and long ones are divided (cmake/tests.cmake).
ctest --test-dir "$build" --output-on-failure -j $((2 * jobs)) --timeout 1800 --no-tests=error \
  -R "^($(IFS='|' && echo "${rooms[*]}"))(_[0-9]+)?\$"
