#!/usr/bin/env bash
# Times causal attention, forward and backward, beside PyTorch's in one run. Arguments go to bench/attention/run.py.
set -uo pipefail
cd "$(dirname "$0")/../.."
source tests/parity/environment.sh
ensure_parity_environment || exit $?
export PYTHONDONTWRITEBYTECODE=1
cmake --build build --target attention_bench > /dev/null || { echo "build/ cannot make attention_bench: run make build first." >&2; exit 2; }
exec "$PYTHON" bench/attention/run.py "$@"
