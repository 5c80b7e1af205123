#!/usr/bin/env python3
"""Writes fixtures/spans.jsonl: the places of tokens that the real packages give for the tokenizers
and texts of the other fixtures. Needs `tokenizers` and `sentencepiece`.

Each line is {"tokenizer": file, "hex": text, "spans": [[id, first byte, byte after], …]}.
"""
import json
import pathlib

import sentencepiece
import tokenizers

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
NAMES = [
    "bert.json",
    "flavours.json",
    "llama2.json",
    "metaspace.json",
    "sp_bpe_bytes.model",
    "sp_bpe_symbols.model",
    "sp_bpe_unused.model",
    "sp_unigram_bytes.model",
    "sp_unigram_symbols.model",
    "strips.json",
    "t5.json",
    "word_level.json",
]
LONGEST = 120


def spans_of(name):
    """Returns the function from a text to [[id, first byte, byte after]]."""
    path = str(FIXTURES / name)
    if name.endswith(".model"):
        processor = sentencepiece.SentencePieceProcessor(model_file=path)
        return lambda text: [
            [piece.id, piece.begin, piece.end]
            for piece in processor.encode(text, out_type="proto").pieces
        ]
    tokenizer = tokenizers.Tokenizer.from_file(path)

    def spans(text):
        starts = [len(text[:i].encode()) for i in range(len(text) + 1)]
        encoding = tokenizer.encode(text)
        return [[i, starts[a], starts[b]] for i, (a, b) in zip(encoding.ids, encoding.offsets)]

    return spans


def main():
    with open(FIXTURES / "spans.jsonl", "w", encoding="ascii") as out:
        for name in NAMES:
            spans = spans_of(name)
            stem = name.rsplit(".", 1)[0]
            lines = (FIXTURES / f"{stem}.jsonl").read_text().splitlines()
            texts = [bytes.fromhex(json.loads(line)["hex"]) for line in lines]
            for raw in [text for text in texts if len(text) <= LONGEST][:30]:
                text = raw.decode("utf-8", errors="replace")
                case = {"tokenizer": name, "hex": raw.hex(), "spans": spans(text)}
                out.write(json.dumps(case, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
