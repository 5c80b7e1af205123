#!/usr/bin/env bash
# Checks the C++ sources: format, line length and clang-tidy; and the line length of scripts.
#   scripts/lint.sh           everything
#   scripts/lint.sh changed   clang-tidy only on what changed since main or the last release tag
#   scripts/lint.sh format    no clang-tidy
# BASE=<commit> gives another point to compare with, JOBS=<n> the number of clang-tidy processes.
# LINT_SECONDS=<n>: clang-tidy starts no further source after that time, and the rest is named.
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
  sources | xargs "$program" --dry-run -Werror || {
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

# The commit that `changed` compares with: where this branch left main, or on main itself the last
# release, or else the parent.
base_commit() {
  local main head
  head=$(git rev-parse HEAD)
  for main in origin/main main; do
    main=$(git merge-base "$main" HEAD 2>/dev/null) || continue
    [ "$main" != "$head" ] && echo "$main" && return
  done
  git describe --tags --abbrev=0 HEAD^ 2>/dev/null ||
    git rev-parse --verify -q HEAD^ || echo "$head"
}

# The source that shows a header to clang-tidy: its twin, or else one that includes it.
source_of_header() {
  local header=$1 name
  [ -e "${header%.h}.cpp" ] && echo "${header%.h}.cpp" && return
  name=${header#src/}
  git grep -lF "\"${name#tests/}\"" -- '*.cpp' | head -1
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
  local program version base="" compiled files options left_out
  for version in 19 18 17 16; do
    program=$(command -v clang-tidy-$version) && break
  done
  if [ -z "$program" ]; then
    printf '\n!! lint: clang-tidy SKIPPED, %s\n\n' \
      'version 16 or newer is not installed (apt-get install clang-tidy-19)'
    return
  fi
  cmake --preset release -B $build -DMEGATRON_PRECOMPILE=OFF -DMEGATRON_SANITIZE= \
    -DMEGATRON_WERROR=OFF >/dev/null
  [ "$scope" = all ] || base=${BASE:-$(base_commit)}
  compiled=$(sed -nE "s|^ *\"file\": \"$PWD/(.*)\",?$|\1|p" $build/compile_commands.json | sort -u)
  files=$(files_to_tidy | grep -Fxf <(echo "$compiled") || true)
  [ -n "$files" ] || { echo "lint: no source changed since $base" && return; }
  echo "lint: clang-tidy of $(wc -l <<<"$files")" \
    "sources${base:+ that changed since $(git describe --always "$base")}"
  left_out=$build/left_out.txt
  : >"$left_out"
  # Each process writes at once what it found. Headers that clang has not (omp.h, the interface of
  # sanitizers) are those of g++. Its warnings about deprecated functions are of libstdc++ 12's own
  # headers; g++ warns of ours.
  options="--quiet --extra-arg=-idirafter --extra-arg=$(c++ -print-file-name=include)"
  options+=" --extra-arg=-fno-openmp --extra-arg=-Wno-deprecated-declarations"
  if ! xargs -P "${JOBS:-$(nproc)}" -I{} sh -c \
    '[ "$(date +%s)" -lt "$2" ] || { echo "$1" >>"$3"; exit 0; }
      found=$('"$program -p $build $options"' "$1" 2>/dev/null) ||
      { printf "%s\n" "$found"; exit 1; }' \
    sh {} $(($(date +%s) + ${LINT_SECONDS:-1000000})) "$left_out" \
    <<<"$files"; then
    status=1
  fi
  if [ -s "$left_out" ]; then
    printf '\n!! lint: %s\n' \
      "$(wc -l <"$left_out") sources were not checked within $LINT_SECONDS s (LINT_SECONDS):"
    sed 's/^/  /' "$left_out"
  fi
}

check_format
check_columns
[ "$scope" = format ] || check_bugs
exit $status
