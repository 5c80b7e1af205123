#!/usr/bin/env bash
# Prints the commit that changes are counted from: BASE if it is given, else where this branch left
# main, or on main itself the last release, or else the newest commit that is a day older. It is
# HEAD where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -z "${BASE:-}" ] || exec git rev-parse --verify "$BASE^{commit}"
head=$(git rev-parse HEAD)
for main in origin/main main; do
  main=$(git merge-base "$main" HEAD 2>/dev/null) || continue
  [ "$main" != "$head" ] && echo "$main" && exit
done
base=$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null) ||
  base=$(git rev-list -1 --before=$(($(git log -1 --format=%ct) - 86400)) HEAD)
git rev-parse --verify -q "$base^{commit}" || echo "$head"
