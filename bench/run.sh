#!/usr/bin/env bash
# Times training steps beside PyTorch on the same shapes, in one run. `ranks` as the first argument: one rank and two
# (bench/ranks.py). Further arguments go to the program.
set -uo pipefail
cd "$(dirname "$0")/.."
source tests/parity/environment.sh
ensure_parity_environment || exit $?
export MEGATRON=${MEGATRON:-$PWD/build/bin/megatron} PYTHONDONTWRITEBYTECODE=1
[ -x "$MEGATRON" ] || { echo "$MEGATRON is missing: run make build first." >&2; exit 2; }
case "${1:-}" in ranks) shift; exec "$PYTHON" bench/ranks.py "$@" ;; esac
exec "$PYTHON" bench/gpt2_124m.py "$@"
