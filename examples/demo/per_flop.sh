#!/usr/bin/env bash
# Trains the demo's GPT and examples/deepseek.yaml with the same arithmetic on the demo's text, and
# draws the validation loss over FLOPs as docs/deepseek-light.svg and docs/deepseek-dark.svg. It
# needs the text of `make demo`, and Python for the drawing.
#   DENSE_ITERATIONS=3000   the steps of the dense model; the other models get as many FLOPs
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PWD/${BUILD_DIR:-build}/bin:$PATH
steps=${DENSE_ITERATIONS:-3000}
out=out/per_flop
[ -e out/demo/corpus_text_document.idx ] || {
  echo "per_flop: out/demo/corpus_text_document.idx is missing: run \`make demo\` first" >&2
  exit 2
}

# What a step costs is in the first line of a run's metrics.
flops() { sed -n '1s/.*"flops_per_iteration": *\([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl"; }

# train NAME STEPS flags…
train() {
  local name=$1 steps=$2
  shift 2
  rm -rf "${out:?}/$name"
  mkdir -p "$out"
  megatron pretrain gpt "$@" --data-path out/demo/corpus_text_document \
    --train-iters "$steps" --lr-warmup-iters $((steps / 20)) \
    --eval-interval $((steps / 20)) --eval-iters 24 --log-interval 100 --seed 1 \
    --tensorboard-dir "$out/$name" >"$out/$name.log"
  printf '%-34s %5d iterations of %s FLOPs: ' "$name" "$steps" "$(flops "$out/$name")"
  grep -o 'lm loss value: [^ ]*' "$out/$name.log" | tail -n 1
}

# equal NAME flags…: as many FLOPs as the dense model had
equal() {
  local name=$1
  shift
  train "$name" 40 "$@" >/dev/null
  train "$name" "$(awk -v n="$steps" -v dense="$(flops "$out/dense GPT")" \
    -v this="$(flops "$out/$name")" 'BEGIN { printf "%d", n * dense / this }')" "$@"
}

# The demo's model, in the recipe of examples/deepseek.yaml.
dense=(--num-layers 4 --hidden-size 192 --ffn-hidden-size 640 --num-attention-heads 3
  --seq-length 256 --position-embedding-type rope --normalization RMSNorm --swiglu
  --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --micro-batch-size 8
  --global-batch-size 8 --lr 3e-3 --min-lr 1.5e-4 --lr-decay-style cosine --weight-decay 0.1
  --adam-beta2 0.95 --split 95,5,0 --tokenizer-type ByteTokenizer)
train "dense GPT" "$steps" "${dense[@]}"
equal "with latents and experts" --config examples/deepseek.yaml --mtp-num-layers 0
equal "and multi-token prediction" --config examples/deepseek.yaml
examples/demo/per_flop.py "$out" docs
