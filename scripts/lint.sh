#!/usr/bin/env bash
# Checks the C++ sources: format, line length and clang-tidy; and the line length of scripts.
#   scripts/lint.sh           everything
#   scripts/lint.sh changed   clang-tidy only on what changed since scripts/base_commit.sh
#   scripts/lint.sh format    no clang-tidy
# BASE=<commit> gives another point to compare with, JOBS=<n> the number of clang-tidy processes.
# LINT_SECONDS=<n>: clang-tidy starts no further source after that time, and the rest is named.
# clang-tidy does not read again what it found clean before (scripts/tidy.py).
set -euo pipefail
cd "$(dirname "$0")/.."
scope=${1:-all}
build=build-lint # configured without precompiled headers, never built
status=0

sources() { git ls-files '*.cpp' '*.h' '*.cu' '*.cuh'; }

# Versions of clang-format disagree about details; Debian 12's is the one we follow.
check_format() {
  local program
  program=$(command -v clang-format-14 || command -v clang-format || true)
  if [ -z "$program" ] || ! "$program" --version | grep -q 'version 14\.'; then
    printf '\n!! lint: format SKIPPED, %s\n\n' \
      'clang-format 14 is not installed (apt-get install clang-format-14)'
    return
  fi
  sources | xargs -n 100 -P "${JOBS:-$(nproc)}" "$program" --dry-run -Werror || {
    echo "lint: to format these files:" \
      "git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs $program -i" >&2
    status=1
  }
}

scripts() { git ls-files '*.py' '*.sh' .ci/run Makefile; }

# clang-format leaves long strings and comments alone, and does not see the scripts. The tables of
# Unicode are generated.
check_columns() {
  local long
  long=$({ sources | grep -E '^(src|tests|bench)/' | grep -v '/unicode_tables\.cpp$'; scripts; } |
    LC_ALL=C.UTF-8 xargs grep -nE '.{101}' /dev/null) || true
  [ -z "$long" ] && return
  printf '%s\nlint: these lines are longer than 100 columns\n' "$long" >&2
  status=1
}

# The source that shows a header to clang-tidy: its twin, or else one that includes it.
source_of_header() {
  local header=$1 name
  [ -e "${header%.h}.cpp" ] && echo "${header%.h}.cpp" && return
  name=${header#src/}
  git grep -lF "\"${name#tests/}\"" -- '*.cpp' | awk 'NR == 1' # reads all: no broken pipe
}

# What changed since the base and still exists: uncommitted changes first, then those of the
# newest commit, so that a limit of time leaves out what was checked most often before.
changed_files() {
  { git diff --name-only HEAD; git log --format= --name-only "$base"..HEAD; } |
    grep -E '\.(cpp|h)$' | awk '!seen[$0]++' |
    grep -Fxf <(git diff --name-only --diff-filter=d "$base") || true
}

files_to_tidy() {
  if [ "$scope" = all ]; then
    git ls-files '*.cpp'
    return
  fi
  changed_files | while read -r file; do
    case $file in
      *.h) source_of_header "$file" ;;
      *) echo "$file" ;;
    esac
  done | awk '!seen[$0]++'
}

check_bugs() {
  local program version options files base=""
  for version in 19 18 17 16; do
    program=$(command -v clang-tidy-$version) && break
  done
  if [ -z "$program" ]; then
    printf '\n!! lint: clang-tidy SKIPPED, %s\n\n' \
      'version 16 or newer is not installed (apt-get install clang-tidy-19)'
    return
  fi
  cmake --preset release -B $build -DMEGATRON_PRECOMPILE=OFF -DMEGATRON_UNITY=OFF \
    -DMEGATRON_SANITIZE= -DMEGATRON_WERROR=OFF >/dev/null
  if [ "$scope" = changed ]; then
    base=$(scripts/base_commit.sh)
    echo "lint: changes since $(git describe --always "$base")"
  fi
  # Headers that clang has not (omp.h, the interface of sanitizers) are those of g++. Its warnings
  # about deprecated functions are of libstdc++ 12's own headers; g++ warns of ours.
  options=(--quiet --extra-arg=-idirafter "--extra-arg=$(c++ -print-file-name=include)"
    --extra-arg=-fno-openmp --extra-arg=-Wno-deprecated-declarations)
  files=$(files_to_tidy)
  source scripts/cache.sh
  scripts/tidy.py --build $build --cache "$CACHE/tidy" --program "$program" \
    --jobs "${JOBS:-$(nproc)}" --seconds "${LINT_SECONDS:-1000000}" \
    -- "${options[@]}" <<<"$files" || status=1
}

check_format
check_columns
[ "$scope" = format ] || check_bugs
exit $status
