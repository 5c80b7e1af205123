#!/usr/bin/env bash
# Installs into an empty folder, builds this project against what is there, and trains its family on
# two ranks of tensor parallelism, continues on one, exports the weights and scores with them.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$PWD/out/extension
rm -rf "$out"
cmake --install "${BUILD_DIR:-build}" --prefix "$out/prefix" >/dev/null
cmake -S examples/extension -B "$out/build" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$out/prefix" >/dev/null
cmake --build "$out/build"
extension=$out/build/extension
train=("$extension" pretrain sine --num-layers 2 --hidden-size 32 --num-attention-heads 2
  --seq-length 16 --max-position-embeddings 16 --vocab-size 64 --tokenizer-type NullTokenizer
  --mock-data --micro-batch-size 1 --global-batch-size 4 --lr 1e-2 --lr-decay-iters 6 --eval-iters 0
  --log-interval 2 --save "$out/run")

# Two ranks in the environment of a launcher such as torchrun.
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000))
RANK=1 LOCAL_RANK=1 "${train[@]}" --tensor-model-parallel-size 2 --train-iters 4 >"$out/rank1.log" &
RANK=0 LOCAL_RANK=0 "${train[@]}" --tensor-model-parallel-size 2 --train-iters 4
wait $!
unset WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

"${train[@]}" --load "$out/run" --train-iters 6 | grep "iteration  *6/"
"$extension" convert --load "$out/run" --save "$out/release" --format megatron
echo '{"ids": [1, 2, 3, 4]}' | "$extension" score --load "$out/release" | grep logprobs
if "$out/prefix/bin/megatron" score --load "$out/release" </dev/null 2>"$out/refused"; then
  echo "a program without the family loaded its weights" >&2
  exit 1
fi
grep "must be one of" "$out/refused"
