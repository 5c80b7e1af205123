#!/usr/bin/env bash
# torchrun: its agent starts the ranks of this host. Run this on every host.
#   examples/cluster/torchrun.sh static 0 node1    # on node1, two hosts
#   examples/cluster/torchrun.sh static 1 node1    # on the other
#   examples/cluster/torchrun.sh elastic node1     # on one to four hosts, node1 first
#   examples/cluster/torchrun.sh etcd etcd1:2379   # on one to four hosts, in any order
# static: a rank that fails ends the run. elastic: the agents restart all ranks, on the hosts that
# are left, and take in hosts that come later; node1, which hosts the rendezvous, must live. etcd:
# the same with the rendezvous in a site's etcd, so that any host may be lost (etcd 3.5 and older
# with --enable-v2; pip install python-etcd on every host).
# With MEGATRON_JOB_TOKEN set to one text on every host, an elastic run keeps strangers out.
set -euo pipefail
RUN=${RUN:-/shared/gpt}
PORT=${PORT:-29400}
# torchrun sets OMP_NUM_THREADS=1 unless it is set: with GPUs that is enough.

case ${1:-} in
  static) hosts=(--nnodes 2 --node-rank "$2" --master-addr "$3" --master-port "$PORT") ;;
  elastic)
    hosts=(--nnodes 1:4 --max-restarts 20 --rdzv-id gpt --rdzv-backend c10d
      --rdzv-endpoint "$2:$PORT" --rdzv-conf join_timeout=600,last_call_timeout=30)
    # The agents share one store by default, and give its address only to the hosts of the first
    # start: one that comes later would wait for it in vain. With 1, rank 0 has a store of its own.
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    ;;
  etcd)
    hosts=(--nnodes 1:4 --max-restarts 20 --rdzv-id gpt --rdzv-backend etcd-v2
      --rdzv-endpoint "$2" --rdzv-conf join_timeout=600,last_call_timeout=30)
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # the agents' store would end with its host
    ;;
  *)
    echo "usage: $0 static RANK FIRST_HOST | elastic FIRST_HOST | etcd HOST:PORT" >&2
    exit 2
    ;;
esac

exec torchrun --no-python --nproc-per-node 8 "${hosts[@]}" \
  megatron pretrain gpt --config "$RUN/run.yaml" \
  --save "$RUN/checkpoints" --load "$RUN/checkpoints" --save-interval 500
