#!/usr/bin/env bash
# The text of the examples: a quarter of the King James Bible (Debian's bible-kjv), each chapter a
# document, as out/examples/bible_text_document.{bin,idx}; for examples/bert.yaml with verses as
# sentences and words as tokens, out/examples/{wordpiece/,chapters_text_document.*}; and for
# examples/sft.yaml a tokenizer and the verses of the gospels as answers,
# out/examples/{tokenizer/,verses.jsonl}.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/${BUILD_DIR:-build}/bin:$PATH
command -v bible >/dev/null || {
  echo "the King James Bible is missing: \`sudo apt-get install bible-kjv\`" >&2
  exit 2
}
mkdir -p out/examples
# Paragraphs of a .txt file are documents: a blank line before each chapter.
bible -f 'gen1:1-1sam31:13' |
  awk '{ chapter = $1; sub(/:.*/, "", chapter) }
    NR > 1 && chapter != last { print "" }
    { print; last = chapter }' >out/examples/bible.txt
megatron preprocess-data --input out/examples/bible.txt --text-documents paragraph \
  --output-prefix out/examples/bible --tokenizer-type ByteTokenizer --append-eod

megatron tokenizer train --vocab-size 320 --output out/examples/tokenizer \
  --special-tokens '<|endoftext|>,<unk>,<SPECIAL_10>,<SPECIAL_11>,<SPECIAL_12>,<SPECIAL_233>' \
  out/examples/bible.txt
turns='{"messages":[{"role":"user","content":"\1"},{"role":"assistant","content":"\2"}]}'
bible -f 'mat1:1-joh21:25' |
  sed -n 's/["\\]/\\&/g; s/^\([^ ]*\) \(..*\)$/'"$turns"'/p' >out/examples/verses.jsonl

megatron tokenizer train --model wordpiece --vocab-size 2000 --output out/examples/wordpiece \
  out/examples/bible.txt
bible -f 'gen1:1-1sam31:13' |
  awk '{ chapter = verse = $1; sub(/:.*/, "", chapter)
      text = substr($0, length(verse) + 2); gsub(/["\\]/, "\\\\&", text)
      if (NR > 1 && chapter != last) print "]}"
      printf "%s\"%s\"", chapter != last ? "{\"text\":[" : ",", text
      last = chapter }
    END { print "]}" }' >out/examples/chapters.jsonl
megatron preprocess-data --input out/examples/chapters.jsonl \
  --output-prefix out/examples/chapters --tokenizer-model out/examples/wordpiece
