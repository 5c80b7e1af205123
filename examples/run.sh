#!/usr/bin/env bash
# Runs every recipe for a few steps and checks that it learns; checks that the files of the real
# sizes are valid settings; runs the recipes for clusters.
#   EXAMPLE_ITERATIONS=25   how many steps
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${BUILD_DIR:-build}/bin:$PATH
iterations=${EXAMPLE_ITERATIONS:-25}

fail() {
  printf 'examples: %s\n' "$*" >&2
  exit 1
}

examples/data.sh

family_of() {
  case $1 in
    bert | hybrid | t5) echo "$1" ;;
    *) echo gpt ;;
  esac
}

for recipe in examples/*.yaml; do
  name=$(basename "$recipe" .yaml)
  family=$(family_of "$name")
  out=out/examples/$name
  rm -rf "$out"
  printf '\n$ megatron pretrain %s --config %s --train-iters %s --eval-iters 1 %s\n' \
    "$family" "$recipe" "$iterations" "--tensorboard-dir $out"
  megatron pretrain "$family" --config "$recipe" --train-iters "$iterations" --eval-iters 1 \
    --tensorboard-dir "$out" >"$out.log" || {
    tail -n 20 "$out.log" >&2
    fail "$recipe failed (the log above is $out.log)"
  }
  grep 'lm loss: ' "$out.log" | tail -n 1
  losses=$(sed -n '/"split"/d; s/.*"lm loss": *\([0-9.]*\).*/\1/p' "$out/metrics.jsonl")
  first=$(head -n 1 <<<"$losses") last=$(tail -n 1 <<<"$losses")
  awk -v first="$first" -v last="$last" 'BEGIN { exit !(last < first - 0.5) }' ||
    fail "$recipe does not learn: loss $first at first, $last at last"
  printf '%s: loss %s at first, %s at last\n' "$name" "$first" "$last"
done

printf '\n'
for pair in gpt3:gpt3_125m llama:llama3_8b qwen:qwen3_0.6b mixtral:mixtral_8x7b \
  deepseek:deepseek_v3 bert:bert_340m sft:llama3_8b_sft; do
  small=examples/${pair%%:*}.yaml full=examples/full/${pair##*:}.yaml
  megatron pretrain "$(family_of "${pair%%:*}")" --config "$small" --config "$full" --print-config \
    >"out/examples/${pair##*:}.txt" || fail "$full: not valid on top of $small"
  printf '%s: valid settings\n' "$full"
done

# What examples/cluster says, started as the schedulers would. It ends in about half a minute.
printf '\n'
tests/cluster/run.py --program "$(command -v megatron)"
