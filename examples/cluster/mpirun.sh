#!/usr/bin/env bash
# Open MPI: `mpirun` starts one `megatron launch` on each host, which starts the ranks of that host.
#   examples/cluster/mpirun.sh HOSTFILE    # one host in each line
# A rank that fails is restarted by the launchers. A lost host ends the run: start it again, and it
# continues from its last checkpoint.
set -euo pipefail
RUN=${RUN:-/shared/gpt}
hostfile=${1:?usage: $0 HOSTFILE}

# Open MPI does not give its processes the name of the first host.
MASTER_ADDR=$(awk '!/^ *(#|$)/ { print $1; exit }' "$hostfile")
MASTER_PORT=${MASTER_PORT:-29500}
# Only launchers and ranks that know this text can connect to the store of the run.
MEGATRON_JOB_TOKEN=$(openssl rand -hex 16)
export MASTER_ADDR MASTER_PORT MEGATRON_JOB_TOKEN

exec mpirun --hostfile "$hostfile" --map-by ppr:1:node --bind-to none \
  -x PATH -x MASTER_ADDR -x MASTER_PORT -x MEGATRON_JOB_TOKEN \
  megatron launch --nproc-per-node 8 --max-restarts 20 -- \
  pretrain gpt --config "$RUN/run.yaml" \
  --save "$RUN/checkpoints" --load "$RUN/checkpoints" --save-interval 500
