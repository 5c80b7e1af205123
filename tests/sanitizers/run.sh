#!/usr/bin/env bash
# Builds and runs tests under a sanitizer, in build-asan/ or build-tsan/.
#   tests/sanitizers/run.sh asan          AddressSanitizer and UBSan on the rooms without LibTorch
#   tests/sanitizers/run.sh tsan          ThreadSanitizer on the rooms whose tests start threads
#   tests/sanitizers/run.sh tsan base …   only the tests of these rooms
set -euo pipefail
cd "$(dirname "$0")/../.."
sanitizer=$1
shift
build=build-$sanitizer
here=$PWD/tests/sanitizers
jobs=${JOBS:-$(nproc)}

case $sanitizer in
  asan) label=torch_free targets=torch_free_tests ;;
  tsan) label=threaded targets=threaded_tests ;;
  *) echo "sanitizers: asan or tsan, not $sanitizer" >&2 && exit 2 ;;
esac
select=(-L "$label")
if [ $# -gt 0 ]; then
  targets=${*/%/_tests}
  select=(-R "^($(IFS='|' && echo "$*"))\$")
fi

export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export LSAN_OPTIONS=suppressions=$here/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=suppressions=$here/tsan.supp:second_deadlock_stack=1
TSAN_OPTIONS+=:ignore_noninstrumented_modules=1

[ -e "$build/build.ninja" ] || cmake --preset "$sanitizer" >/dev/null
# shellcheck disable=SC2086 # several targets
cmake --build "$build" -j "$jobs" --target $targets
ctest --test-dir "$build" --output-on-failure -j "$jobs" "${select[@]}" --timeout 1200
