#!/usr/bin/env bash
# Compares build/bin/megatron with the real programs: one line per check, then `N passed, N failed`.
# Usage: tests/parity/run.sh [name...]   runs name_parity.py for each name; all of them without
# arguments. PARITY_JOBS=N runs N at a time.
set -uo pipefail
cd "$(dirname "$0")/../.."
source tests/parity/environment.sh
ensure_parity_environment || exit $?
ensure_browser
ensure_mpirun

export MEGATRON=${MEGATRON:-$PWD/build/bin/megatron}
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1
export OPENBLAS_NUM_THREADS=1 # numpy would start the others before the scripts are forked
[ -x "$MEGATRON" ] || { echo "$MEGATRON is missing: run make build first." >&2; exit 2; }
MEGATRON=$(realpath -s "$MEGATRON") # scripts run in folders of their own

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$PYTHON" tests/parity/run.py "$work" "$@"
