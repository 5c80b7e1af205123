"""Writes fixtures/: small tokenizers and what the real `tokenizers` package says about lines.

The tokenizers are of the GPT-2, Llama 3, Qwen 2 and SentencePiece kinds.

NAME.json is a tokenizer.json; NAME.jsonl holds one {"hex": bytes, "ids": [...], "text": decoded,
"kept": decoded with special tokens} a line; gpt2/ holds the same GPT-2 as vocab.json and
merges.txt. Usage: python make_fixtures.py (from anywhere; overwrites fixtures/)
"""
import json
import pathlib
import random
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "parity"))
import tokenizers_parity as parity  # noqa: E402

VOCABULARY = 700
LINES = 100


def write_case(file, tokenizer, line):
    ids = tokenizer.encode(line.decode("utf-8", errors="replace")).ids
    case = {
        "hex": line.hex(),
        "ids": ids,
        "text": tokenizer.decode(ids),
        "kept": tokenizer.decode(ids, skip_special_tokens=False),
    }
    file.write(json.dumps(case) + "\n")


def strips(texts, size):
    """Makes a tokenizer with added tokens that take the spaces beside them.
    The normalizer of its pipeline leaves spaces alone."""
    tokenizer = parity.flavours(texts, size)
    tokenizer.normalizer = parity.normalizers.Lowercase()
    return tokenizer


def main():
    folder = HERE / "fixtures"
    rng = random.Random(7)
    texts = [" ".join(rng.choice(parity.PIECES) for _ in range(20)) for _ in range(400)]
    for family in (
        parity.gpt2,
        parity.llama3,
        parity.qwen2,
        parity.flavours,
        parity.llama2,
        parity.metaspace,
        strips,
    ):
        tokenizer = family(texts, VOCABULARY)
        name = family.__name__
        state = json.loads(tokenizer.to_str())
        (folder / f"{name}.json").write_text(
            json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n"
        )
        with open(folder / f"{name}.jsonl", "w") as file:
            for _ in range(LINES):
                write_case(file, tokenizer, parity.fuzzed_line(rng)[:100])
        if name == "gpt2":
            (folder / "gpt2").mkdir(exist_ok=True)
            tokenizer.model.save(str(folder / "gpt2"))
            vocab = json.loads((folder / "gpt2" / "vocab.json").read_text())
            vocab["<|endoftext|>"] = tokenizer.token_to_id("<|endoftext|>")
            (folder / "gpt2" / "vocab.json").write_text(
                json.dumps(vocab, ensure_ascii=False) + "\n"
            )


if __name__ == "__main__":
    main()
