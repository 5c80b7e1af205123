#!/usr/bin/env bash
# Runs every ```sh block of docs/tutorial.md in order, in one shell and an empty folder, so that the
# tutorial stays true.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${BUILD_DIR:-build}/bin:$PATH
command -v bible >/dev/null || {
  echo "tutorial: the King James Bible is missing: \`sudo apt-get install bible-kjv\`" >&2
  exit 2
}
rm -rf out/tutorial
mkdir -p out/tutorial
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0; next } inside' docs/tutorial.md \
  >out/tutorial/commands.sh
[ "$(wc -l <out/tutorial/commands.sh)" -gt 20 ] || {
  echo "tutorial: docs/tutorial.md holds no commands" >&2
  exit 1
}
cd out/tutorial
bash -euo pipefail -v commands.sh
