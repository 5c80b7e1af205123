#!/usr/bin/env bash
# Decides which test programs run under a sanitizer, and prints their names: a room, kernels, fuzz.
#   tests/sanitizers/rooms.sh BUILD asan           of the rooms without LibTorch
#   tests/sanitizers/rooms.sh BUILD tsan [room…]   of the rooms with threads, or of these
#   tests/sanitizers/rooms.sh BUILD left_to_asan   what `make test` need not run because asan does
#   tests/sanitizers/rooms.sh BUILD test           of the rooms without LibTorch, what it does run
# BUILD is a configured build folder. With SPLIT=1, as in .ci/run, the tests of a room without
# LibTorch run once: with asan if something of the room changed since the base commit
# (scripts/base_commit.sh), else in `make test`. kernels always runs in `make test`, because its
# optimized code is another. tsan too takes only what changed. FULL=1: the sanitizers take all.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1 wanted=$2
shift 2

labelled() { # the test programs with this label; some are divided (cmake/tests.cmake)
  ctest --test-dir "$build" -N -L "$1" -LE nightly 2>/dev/null |
    sed -nE 's/^ *Test +#[0-9]+: ([a-z_]+[a-z])(_[0-9]+)?$/\1/p' | uniq
}

# A change of these concerns every program.
common='CMakeLists\.txt$|CMakePresets\.json$|cmake/|tests/support/|tests/sanitizers/'
common+='|src/megatron/base/'

folders() { # what belongs to one program, as a pattern of paths
  local rooms
  case $1 in
    kernels) echo 'src/kernels/|tests/kernels/' ;;
    fuzz)
      rooms=$(sed -nE 's|^#include "megatron/([a-z_]+)/.*|\1|p' tests/fuzz/targets/*.cpp | sort -u)
      echo "tests/fuzz/|src/megatron/($(paste -sd '|' <<<"$rooms"))/"
      ;;
    *) echo "src/megatron/$1/|tests/$1/" ;;
  esac
}

is_split() { [ -n "${SPLIT:-}" ] && [ -z "${FULL:-}" ]; }

changed() { # of the programs on standard input, those that the sanitizer must run
  local base files name
  is_split || { cat && return; }
  base=$(scripts/base_commit.sh)
  if [ "$base" = "$(git rev-parse HEAD)" ]; then # nothing to compare with
    cat && return
  fi
  files=$(git diff --name-only "$base" && git ls-files --others --exclude-standard)
  while read -r name; do
    grep -qE "^($common|$(folders "$name"))" <<<"$files" && echo "$name"
  done || true
}

left_to_asan() { # nothing outside CI, where `make test` runs everything
  [ -z "${SPLIT:-}" ] || labelled torch_free | changed | sed '/^kernels$/d'
}

case $wanted in
  asan) labelled torch_free | changed ;;
  tsan) if [ $# -gt 0 ]; then printf '%s\n' "$@"; else labelled threaded; fi | changed ;;
  left_to_asan) left_to_asan ;;
  test)
    left_out=$(left_to_asan)
    labelled torch_free | awk -v left_out="$left_out" '
      BEGIN { split(left_out, names, "\n"); for (i in names) is_left_out[names[i]] = 1 }
      !($0 in is_left_out)'
    ;;
  *) echo "rooms: asan, tsan, test or left_to_asan, not $wanted" >&2 && exit 2 ;;
esac
