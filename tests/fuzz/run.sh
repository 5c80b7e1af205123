#!/usr/bin/env bash
# Builds the fuzz targets in build-fuzz/ with libFuzzer, AddressSanitizer and UBSan, and runs them.
#   tests/fuzz/run.sh                 every target for SECONDS_EACH seconds (60), JOBS at once
#   tests/fuzz/run.sh encode npy      only these
# Corpora grow in build-fuzz/corpus/<target>/, from seeds that make_seeds.py takes from small files.
# What breaks a target is written to tests/fuzz/finds/<target>/, which the fast test `fuzz` reads.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build-fuzz
seconds=${SECONDS_EACH:-60}
jobs=${JOBS:-1}

# The first clang that has the run-time library of libFuzzer, which is a package of its own.
compiler() {
  local version
  for version in 16 17 18 19; do
    [ -e "$("clang++-$version" -print-file-name=libclang_rt.fuzzer-$(uname -m).a 2>/dev/null)" ] &&
      command -v "clang++-$version" && return
  done
  echo "fuzz: clang 16 or newer is not installed (apt-get install clang-16 libclang-rt-16-dev)" >&2
  exit 2
}

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/targets/*.cpp; do targets+=("$(basename "$source" .cpp)"); done
fi
if [ ! -e $build/build.ninja ]; then
  cxx=$(compiler)
  cmake --preset fuzz -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="${cxx/++/}" >/dev/null
fi
cmake --build $build -j "$jobs" --target "${targets[@]/#/fuzz_}"
python3 -B tests/fuzz/make_seeds.py $build/corpus

export ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=0
export UBSAN_OPTIONS=print_stacktrace=1
# Without llvm-symbolizer, reports have addresses in place of names.
for version in 16 17 18 19; do
  symbolizer=$(command -v "llvm-symbolizer-$version") && export ASAN_SYMBOLIZER_PATH=$symbolizer
done
run_one() {
  local target=$1 finds=tests/fuzz/finds/$1 log=build-fuzz/$1.log
  mkdir -p "$finds"
  if build-fuzz/bin/fuzz_"$target" -max_total_time="$2" -timeout=60 -rss_limit_mb=3000 \
    -max_len=20000 -print_final_stats=1 -print_funcs=0 -artifact_prefix="$finds/" \
    -dict=tests/fuzz/words.dict "build-fuzz/corpus/$target" "$finds" >"$log" 2>&1; then
    echo "fuzz: $target: no find in $2 s," \
      "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
  else
    echo "fuzz: $target: a find in $finds, see $log:" >&2
    grep -a -m3 -E 'ERROR|runtime error|what\(\)|Find' "$log" >&2 || tail -5 "$log" >&2
    return 1
  fi
  rmdir --ignore-fail-on-non-empty "$finds"
}
export -f run_one
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'run_one "$1" "$2"' sh {} "$seconds"
