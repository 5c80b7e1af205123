#!/usr/bin/env bash
# Compares build/bin/megatron with the real programs: one line per check, then `N passed, N failed`.
# Usage: tests/parity/run.sh [name...]   runs name_parity.py for each name; all of them without
# arguments.
set -uo pipefail
cd "$(dirname "$0")/../.."
source tests/parity/environment.sh
ensure_parity_environment || exit $?
ensure_browser
ensure_mpirun

export MEGATRON=${MEGATRON:-$PWD/build/bin/megatron}
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1
[ -x "$MEGATRON" ] || { echo "$MEGATRON is missing: run make build first." >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
# megatron-core compiles an extension when imported, and waits for ever where another run left its
# lock.
export TORCH_EXTENSIONS_DIR=$work/extensions

if [ $# -gt 0 ]; then
  scripts=("${@/%/_parity.py}")
else
  scripts=($(cd tests/parity && ls *_parity.py))
fi
passed=0 failed=0
for script in "${scripts[@]}"; do
  "$PYTHON" "tests/parity/$script" 2>"$work/errors" | tee "$work/output" |
    grep --line-buffered -E '^(ok|FAIL|note) '
  status=${PIPESTATUS[0]}
  oks=$(grep -c '^ok ' "$work/output") fails=$(grep -c '^FAIL ' "$work/output")
  if [ "$status" != 0 ] || [ "$fails" -gt 0 ]; then
    [ "$fails" -gt 0 ] || { fails=1; echo "FAIL $script ended with exit code $status"; }
    echo "---- whole output of $script"
    cat "$work/output" "$work/errors"
    echo "----"
  elif [ "$oks" = 0 ]; then
    oks=1; echo "ok   $script"
  fi
  passed=$((passed + oks)) failed=$((failed + fails))
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
