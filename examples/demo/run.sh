#!/usr/bin/env bash
# From a text to a small GPT that speaks, in the commands a user would type.
#   DEMO_TEXT=file     another text (default: the King James Bible of Debian's package bible-kjv)
#   DEMO_SECONDS=420   how long to train; the machine's speed decides how many iterations that is
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${DEMO_SECONDS:-420}
out=out/demo
save=$out/checkpoint
build=${BUILD_DIR:-build}
export PATH=$PWD/$build/bin:$PATH

fail() {
  printf 'demo: %s\n' "$*" >&2
  exit 2
}
headline() { printf '\n\033[1m%s\033[0m\n' "$*"; }
show() { printf '$ %s\n' "$(printf '%q ' "$@")"; }
typed() {
  show "$@"
  "$@"
}

[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "DEMO_SECONDS=$seconds: give a whole number of seconds above 0"
[ -x "$build/bin/megatron" ] || fail "$build/bin/megatron is missing: run \`make build\`"
rm -rf "$out"
mkdir -p "$out"

headline "1. Text"
if [ -n "${DEMO_TEXT:-}" ]; then
  [ -s "$DEMO_TEXT" ] || fail "DEMO_TEXT=$DEMO_TEXT: no such file, or it is empty"
  cp -- "$DEMO_TEXT" "$out/text.txt"
  prompts=("The" "It was" "And")
else
  command -v bible >/dev/null || fail "the King James Bible is missing: \`sudo apt-get install bible-kjv\`, or give DEMO_TEXT=file"
  # A blank line before each chapter: `preprocess-data` takes the paragraphs of a .txt file as documents.
  bible -f 'gen1:1-rev22:21' | awk '{ chapter = $1; sub(/:.*/, "", chapter) } NR > 1 && chapter != last { print "" } { print; last = chapter }' >"$out/text.txt"
  prompts=("Ge1:1 In the beginning" "And Jesus said unto them," "Thou shalt not")
fi
printf '%s: %d lines, %d bytes\n' "$out/text.txt" "$(wc -l <"$out/text.txt")" "$(wc -c <"$out/text.txt")"

headline "2. Tokens"
typed megatron preprocess-data --input "$out/text.txt" --output-prefix "$out/corpus" --tokenizer-type ByteTokenizer --append-eod --workers 2
data=$out/corpus_text_document
split=95,5,0

headline "3. What counting achieves"
typed ngram_baseline --data-path "$data" --split "$split" --json | tee "$out/ngrams.json"
json_number() { sed -n "s/.*\"$2\": *\([-+.0-9eE]*\).*/\1/p" "$1" | tail -n 1; }
valid_tokens=$(json_number "$out/ngrams.json" valid_tokens)

sequence=256
batch=16
evaluations=$((valid_tokens / (sequence * batch)))
model=(--num-layers 4 --hidden-size 192 --ffn-hidden-size 640 --num-attention-heads 3 --seq-length "$sequence"
  --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --hidden-dropout 0 --attention-dropout 0)
recipe=(--micro-batch-size "$batch" --global-batch-size "$batch" --lr 4e-3 --min-lr 2e-4 --lr-decay-style cosine --lr-warmup-fraction 0.05
  --weight-decay 0.1 --adam-beta2 0.95 --data-path "$data" --split "$split" --tokenizer-type ByteTokenizer)

headline "4. How fast is this machine?"
trial=12
typed megatron pretrain gpt "${model[@]}" "${recipe[@]}" --train-iters "$trial" --eval-iters 0 --log-interval 4 --tensorboard-dir "$out/trial"
step_ms=$(sed -n 's/.*"elapsed_ms": *\([0-9.]*\).*/\1/p' "$out/trial/metrics.jsonl" | tail -n 8 | sort -n | sed -n 4p)
iterations=$(awk -v s="$seconds" -v ms="$step_ms" 'BEGIN { n = int(s * 1000 / ms); print n < 20 ? 20 : n }')
printf '%s ms per iteration: %d iterations in %d seconds\n' "$step_ms" "$iterations" "$seconds"

headline "5. Training, interrupted half-way by SIGTERM"
train=(megatron pretrain gpt "${model[@]}" "${recipe[@]}" --train-iters "$iterations" --eval-iters "$evaluations" --eval-interval "$((iterations + 1))"
  --log-interval "$(((iterations + 19) / 20))" --save "$save" --load "$save")
show "${train[@]}"
"${train[@]}" &
child=$!
trap 'kill "$child" 2>/dev/null || true' EXIT
half=$((iterations / 2))
while kill -0 "$child" 2>/dev/null; do
  [ "$(tail -n 1 "$save/metrics.jsonl" 2>/dev/null | sed -n 's/.*"iteration": *\([0-9]*\).*/\1/p')" -ge "$half" ] 2>/dev/null && break
  sleep 0.1
done
show kill -TERM "$child"
kill -TERM "$child" || fail "training ended before it was interrupted"
code=0
wait "$child" || code=$?
trap - EXIT
[ "$code" = 143 ] || fail "training should have saved and left with exit code 143, but left with $code"
printf 'saved, exit code %d\n' "$code"

headline "6. The same command goes on"
typed "${train[@]}"
loss=$(sed -n 's/.*"split": *"validation".*"lm loss": *\([0-9.eE+-]*\),.*/\1/p' "$save/metrics.jsonl" | tail -n 1)

headline "7. Result: nats per byte of the validation text (less is better)"
for order in 3 4 5; do printf '  %-36s %.3f\n' "$order-gram, Kneser-Ney" "$(json_number "$out/ngrams.json" "$order-gram")"; done
printf '  %-36s %.3f\n' "this GPT, $iterations iterations" "$loss"

headline "8. It speaks"
samples=(megatron generate --load "$save" --max-new-tokens 240 --temperature 0.8 --top-p 0.95)
for prompt in "${prompts[@]}"; do samples+=(--prompt "$prompt"); done
typed "${samples[@]}"

headline "What to try next"
cat <<TRY
  export PATH=$PWD/$build/bin:\$PATH
  megatron generate --load $save --prompt "And the king said" --temperature 0.5
  megatron checkpoint inspect $save
  megatron convert --load $save --save $out/hf --format hf       # opens in transformers as a Llama
  DEMO_SECONDS=1800 make demo                                    # longer is better
  DEMO_TEXT=book.txt make demo                                   # your own text
TRY
