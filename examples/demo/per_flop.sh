#!/usr/bin/env bash
# Trains the demo's GPT and another recipe with the same arithmetic on the demo's text, and draws
# the validation loss over FLOPs as docs/NAME-light.svg and docs/NAME-dark.svg. It needs the text of
# `make demo`, and Python for the drawing.
#   per_flop.sh deepseek    examples/deepseek.yaml, without and with multi-token prediction
#   per_flop.sh hybrid      examples/hybrid.yaml
#   DENSE_ITERATIONS=3000   the steps of the dense model; the other models get as many FLOPs
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PWD/${BUILD_DIR:-build}/bin:$PATH
plot=${1:-}
case $plot in
  deepseek | hybrid) ;;
  *) echo "usage: per_flop.sh deepseek|hybrid" >&2 && exit 2 ;;
esac
steps=${DENSE_ITERATIONS:-3000}
out=out/per_flop/$plot
[ -e out/demo/corpus_text_document.idx ] || {
  echo "per_flop: out/demo/corpus_text_document.idx is missing: run \`make demo\` first" >&2
  exit 2
}

# What a step costs is in the first line of a run's metrics.
flops() { sed -n '1s/.*"flops_per_iteration": *\([0-9.e+]*\).*/\1/p' "$1/metrics.jsonl"; }

# train NAME STEPS MODEL flags…
train() {
  local name=$1 steps=$2 model=$3
  shift 3
  rm -rf "${out:?}/$name"
  mkdir -p "$out"
  megatron pretrain "$model" "$@" --data-path out/demo/corpus_text_document \
    --train-iters "$steps" --lr-warmup-iters $((steps / 20)) \
    --eval-interval $((steps / 20)) --eval-iters 24 --log-interval 100 --seed 1 \
    --tensorboard-dir "$out/$name" >"$out/$name.log"
  printf '%-34s %5d iterations of %s FLOPs: ' "$name" "$steps" "$(flops "$out/$name")"
  grep -o 'lm loss value: [^ ]*' "$out/$name.log" | tail -n 1
}

# equal NAME MODEL flags…: as many FLOPs as the dense model had
equal() {
  local name=$1
  shift
  train "$name" 40 "$@" >/dev/null
  train "$name" "$(awk -v n="$steps" -v dense="$(flops "$out/dense GPT")" \
    -v this="$(flops "$out/$name")" 'BEGIN { printf "%d", n * dense / this }')" "$@"
}

# The demo's model, in the recipe of the others.
dense=(--num-layers 4 --hidden-size 192 --ffn-hidden-size 640 --num-attention-heads 3
  --seq-length 256 --position-embedding-type rope --normalization RMSNorm --swiglu
  --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --micro-batch-size 8
  --global-batch-size 8 --lr 3e-3 --min-lr 1.5e-4 --lr-decay-style cosine --weight-decay 0.1
  --adam-beta2 0.95 --split 95,5,0 --tokenizer-type ByteTokenizer)
train "dense GPT" "$steps" gpt "${dense[@]}"
case $plot in
  deepseek)
    equal "with latents and experts" gpt --config examples/deepseek.yaml --mtp-num-layers 0
    equal "and multi-token prediction" gpt --config examples/deepseek.yaml
    ;;
  hybrid) equal "Mamba-2 and attention" hybrid --config examples/hybrid.yaml ;;
esac
examples/demo/per_flop.py "$out" docs "$plot"
