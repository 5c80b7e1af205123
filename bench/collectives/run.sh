#!/usr/bin/env bash
# Times all-reduce over our transports against PyTorch's Gloo, in one run. Arguments go to
# bench/collectives/run.py.
set -uo pipefail
cd "$(dirname "$0")/../.."
source tests/parity/environment.sh
ensure_parity_environment || exit $?
export PYTHONDONTWRITEBYTECODE=1
cmake --build build --target collectives_bench > /dev/null || {
  echo "build/ cannot make collectives_bench: run make build first." >&2
  exit 2
}
exec "$PYTHON" bench/collectives/run.py "$@"
