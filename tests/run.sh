#!/usr/bin/env bash
# Builds and runs the fast tests and names the slowest: `make test`. SPLIT=1 leaves out those that
# `make asan` runs then (sanitizers/rooms.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD_DIR:-build}
jobs=${JOBS:-$(nproc)}
rooms=$PWD/tests/sanitizers/rooms.sh
targets=megatron_tests
select=(-LE nightly)

left_out=$("$rooms" "$build" left_to_asan)
if [ -n "$left_out" ]; then
  echo "test: leaves the tests of these rooms to asan: ${left_out//$'\n'/ }"
  targets="torch_tests $("$rooms" "$build" test | sed 's/$/_tests/')"
  select+=(-E "^($(paste -sd '|' <<<"$left_out"))\$")
fi
# shellcheck disable=SC2086 # several targets
cmake --build "$build" -j "$jobs" --target $targets
rm -rf "$build/test-times"
status=0
# Most tests take two places, those that wait for processes one (cmake/tests.cmake).
ctest --test-dir "$build" --output-on-failure -j $((2 * jobs)) "${select[@]}" || status=$?
tests/slowest.py "$build/test-times" 10 || true # there may be no Python
exit $status
