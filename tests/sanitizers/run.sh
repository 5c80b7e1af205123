#!/usr/bin/env bash
# Builds and runs tests under a sanitizer, in build-asan/ or build-tsan/.
#   tests/sanitizers/run.sh asan          AddressSanitizer and UBSan on the rooms without LibTorch
#   tests/sanitizers/run.sh tsan          ThreadSanitizer on the rooms whose tests start threads
#   tests/sanitizers/run.sh tsan base …   only the tests of these rooms
# SPLIT=1: only those that changed (rooms.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."
sanitizer=$1
shift
build=build-$sanitizer
here=$PWD/tests/sanitizers
jobs=${JOBS:-$(nproc)}
case $sanitizer in
  asan | tsan) ;;
  *) echo "sanitizers: asan or tsan, not $sanitizer" >&2 && exit 2 ;;
esac

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export LSAN_OPTIONS=suppressions=$here/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=suppressions=$here/tsan.supp:second_deadlock_stack=1
TSAN_OPTIONS+=:ignore_noninstrumented_modules=1

[ -e "$build/build.ninja" ] || cmake --preset "$sanitizer" >/dev/null
rooms=$("$here/rooms.sh" "$build" "$sanitizer" "$@")
if [ -n "${SPLIT:-}" ]; then
  left_out=$(FULL=1 "$here/rooms.sh" "$build" "$sanitizer" "$@" | grep -vxF "$rooms" || true)
  echo "$sanitizer: runs the tests of ${rooms:-no room}" | paste -sd ' '
  [ -z "$left_out" ] || printf '!! %s: %s\n' "$sanitizer" \
    "left out (FULL=1 runs them): ${left_out//$'\n'/ }. Nothing of these rooms changed since \
$(git describe --always "$(scripts/base_commit.sh)")."
fi
[ -n "$rooms" ] || [ -z "${SPLIT:-}" ] || exit 0
# shellcheck disable=SC2086 # several rooms
cmake --build "$build" -j "$jobs" --target ${rooms//$'\n'/_tests }_tests
# A test that computes takes two places, and long ones are divided (cmake/tests.cmake).
ctest --test-dir "$build" --output-on-failure -j $((2 * jobs)) --timeout 1200 --no-tests=error \
  -R "^($(paste -sd '|' <<<"$rooms"))(_[0-9]+)?\$"
