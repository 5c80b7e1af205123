#!/usr/bin/env bash
# Installs into an empty folder, builds this example against what is there, and runs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
prefix=$PWD/out/embed/prefix
rm -rf out/embed
cmake --install "${BUILD_DIR:-build}" --prefix "$prefix" >/dev/null
cmake -S examples/embed -B out/embed/build -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build out/embed/build
out/embed/build/embed
"$prefix/bin/megatron" tokenize --help >/dev/null
"$prefix/bin/megatron" pretrain gpt --help >/dev/null # loads lib/libmegatron_engine.so
