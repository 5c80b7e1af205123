#!/usr/bin/env bash
# From a text to a small GPT that speaks, in the commands a user would type.
#   DEMO_TEXT=file     another text (default: the King James Bible of Debian's package bible-kjv)
#   DEMO_SECONDS=420   how long to train; the machine's speed decides how many iterations that is
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=${DEMO_SECONDS:-420}
out=out/demo
save=$out/checkpoint
log=$out/train.log
metrics=$save/metrics.jsonl
build=${BUILD_DIR:-build}
export PATH=$PWD/$build/bin:$PATH

fail() {
  printf 'demo: %s\n' "$*" >&2
  exit 2
}

headline() { printf '\n== %s\n' "$*"; }

# Prints a command as one would type it.
show() {
  local word line='$'
  for word in "$@"; do
    if [[ $word =~ ^[-A-Za-z0-9_./=,:+]+$ ]]; then line+=" $word"; else line+=" \"$word\""; fi
  done
  printf '%s\n' "$line" | fold -s -w 140 | sed '2,$s/^/    /; $!s/ *$/ \\/'
}

typed() {
  show "$@"
  "$@"
}

# The last number called NAME in FILE, whose lines are JSON objects.
number() { [ ! -e "$1" ] || sed -n "s/.*\"$2\": *\([-+.0-9eE]*\).*/\1/p" "$1" | tail -n 1; }

# One line of progress from the metrics that training writes.
progress() {
  [ -e "$metrics" ] || return 0
  tail -n 5 "$metrics" | awk -v last="$iterations" '
    function field(name) {
      if (!match($0, "\"" name "\": *[-+.0-9eE]+")) return ""
      return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
    }
    /tokens_per_second/ {
      iteration = field("iteration")
      loss = field("lm loss")
      speed += field("tokens_per_second")
      ms += field("elapsed_ms")
      n++
    }
    END {
      if (!n) exit
      left = (last - iteration) * ms / n / 1000
      printf "  iteration %5d of %d   loss %.3f   %6d tokens/s   %d:%02d left",
        iteration, last, loss, speed / n, left / 60, left % 60
    }'
}

# Starts training, writes its log to $log and shows its progress until iteration $1, or until it
# ends.
train_until() {
  local shown=-1 now line
  "${train[@]}" >>"$log" 2>&1 &
  child=$!
  trap 'kill "$child" 2>/dev/null || true' EXIT
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.2
    now=$(number "$metrics" iteration)
    line=$(progress)
    [ -n "$line" ] || continue
    if [ $((${now:-0} * 10 / iterations)) != "$shown" ]; then
      shown=$((now * 10 / iterations))
      printf '\r%s\n' "$line"
    elif [ -t 1 ]; then
      printf '\r%s' "$line"
    fi
    [ "${now:-0}" -lt "$1" ] || return 0
  done
}

# Waits for training to end with exit code $1.
expect_code() {
  local code=0
  wait "$child" || code=$?
  trap - EXIT
  [ "$code" = "$1" ] || {
    tail -n 20 "$log" >&2
    fail "training should have left with exit code $1, but left with $code (the log above is $log)"
  }
}

[[ $seconds =~ ^[1-9][0-9]*$ ]] ||
  fail "DEMO_SECONDS=$seconds: give a whole number of seconds above 0"
for program in megatron ngram_baseline; do
  [ -x "$build/bin/$program" ] || fail "$build/bin/$program is missing: run \`make build\`"
done
rm -rf "$out"
mkdir -p "$out"

headline "Text"
documents=paragraph
if [ -n "${DEMO_TEXT:-}" ]; then
  [ -s "$DEMO_TEXT" ] || fail "DEMO_TEXT=$DEMO_TEXT: no such file, or it is empty"
  cp -- "$DEMO_TEXT" "$out/text.txt"
  [ "$(grep -c '^[[:space:]]*$' "$out/text.txt")" -ge 100 ] || documents=line
  prompts=("The" "It was" "And")
else
  command -v bible >/dev/null ||
    fail "the King James Bible is missing: \`sudo apt-get install bible-kjv\`," \
      "or give DEMO_TEXT=file"
  # A blank line before each chapter: the paragraphs of a .txt file are its documents.
  bible -f 'gen1:1-rev22:21' |
    awk '{ chapter = $1; sub(/:.*/, "", chapter) }
      NR > 1 && chapter != last { print "" }
      { print; last = chapter }' >"$out/text.txt"
  prompts=("Ge1:1 In the beginning" "And Jesus said unto them," "Thou shalt not")
fi
printf '%s: %d lines, %d bytes\n' \
  "$out/text.txt" "$(wc -l <"$out/text.txt")" "$(wc -c <"$out/text.txt")"

headline "Tokens"
typed megatron preprocess-data --input "$out/text.txt" --text-documents "$documents" \
  --output-prefix "$out/corpus" --tokenizer-type ByteTokenizer --append-eod
data=$out/corpus_text_document
split=95,5,0

headline "What counting achieves"
typed ngram_baseline --data-path "$data" --split "$split" --json | tee "$out/ngrams.json"

sequence=256
batch=8
evaluations=$(($(number "$out/ngrams.json" valid_tokens) / (sequence * batch)))
[ "$evaluations" -gt 0 ] ||
  fail "the text is too short: its validation part needs at least $((sequence * batch)) bytes"
model=(--num-layers 4 --hidden-size 192 --ffn-hidden-size 640 --num-attention-heads 3
  --seq-length "$sequence" --position-embedding-type rope --normalization RMSNorm --swiglu
  --disable-bias-linear --hidden-dropout 0 --attention-dropout 0)
recipe=(--micro-batch-size "$batch" --global-batch-size "$batch" --lr 3e-3 --min-lr 1.5e-4
  --lr-decay-style cosine --lr-warmup-fraction 0.05 --weight-decay 0.1 --adam-beta2 0.95
  --data-path "$data" --split "$split" --tokenizer-type ByteTokenizer)

headline "How fast is this machine?"
trial=(megatron pretrain gpt "${model[@]}" "${recipe[@]}" --train-iters 12 --eval-iters 0
  --tensorboard-dir "$out/trial")
show "${trial[@]}"
"${trial[@]}" >"$out/trial.log" || {
  tail -n 20 "$out/trial.log" >&2
  fail "the first iterations failed"
}
step_ms=$(sed -n 's/.*"elapsed_ms": *\([0-9.]*\).*/\1/p' "$out/trial/metrics.jsonl" |
  tail -n 9 | sort -n | sed -n 5p)
iterations=$(awk -v s="$seconds" -v ms="$step_ms" \
  'BEGIN { n = int(s * 1000 / ms); print n < 20 ? 20 : n }')
printf '%.0f ms per iteration: %d iterations in %d seconds\n' "$step_ms" "$iterations" "$seconds"

headline "Training, interrupted half-way"
train=(megatron pretrain gpt "${model[@]}" "${recipe[@]}" --train-iters "$iterations"
  --eval-iters "$evaluations" --eval-interval "$((iterations + 1))" --log-interval 10
  --save "$save" --load "$save")
show "${train[@]}"
train_until $((iterations / 2))
printf '\n'
show kill -TERM "$child"
kill -TERM "$child" 2>/dev/null || fail "training ended before it could be interrupted (see $log)"
expect_code 143
grep 'successfully saved' "$log"
printf 'exit code 143: stopped by SIGTERM after saving\n'

headline "The same command continues where it stopped"
train_until $((iterations + 1))
expect_code 0
grep -A 1 'validation loss at' "$log" | tail -n 2 | head -n 1
loss=$(sed -n 's/.*"split": *"valid[a-z]*".*"lm loss": *\([0-9.eE+-]*\),.*/\1/p' "$metrics" |
  tail -n 1)

headline "Nats per byte of the validation text (less is better)"
row() { printf '  %-44s %.3f\n' "$1" "$2"; }
for order in 3 4 5; do
  row "$order bytes, interpolated Kneser-Ney" "$(number "$out/ngrams.json" "$order-gram")"
done
row "this GPT after $iterations iterations" "$loss"

headline "It speaks"
samples=(megatron generate --load "$save" --max-new-tokens 240 --temperature 0.8 --top-p 0.95)
for prompt in "${prompts[@]}"; do samples+=(--prompt "$prompt"); done
typed "${samples[@]}"

headline "What to try next"
cat <<TRY
  export PATH=\$PWD/$build/bin:\$PATH
  megatron generate --load $save --prompt "And the king said" --temperature 0.5
  megatron checkpoint inspect $save
  megatron convert --load $save --save $out/hf --format hf     # a folder that transformers opens
  DEMO_SECONDS=1800 make demo                                  # longer is better
  DEMO_TEXT=book.txt make demo                                 # your own text
TRY
