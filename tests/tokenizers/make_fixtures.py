"""Writes fixtures/: small tokenizers and what the real `tokenizers` package says about lines.

The tokenizers are of the GPT-2, Llama 3, Qwen 2, BERT and T5 kinds. tiktoken_*.jsonl belong to
small.tiktoken and list.json, sp_*.jsonl to the SentencePiece models sp_*.model.

NAME.json is a tokenizer.json; NAME.jsonl holds one {"hex": bytes, "ids": [...], "text": decoded,
"kept": decoded with special tokens} a line; gpt2/ holds the same GPT-2 as vocab.json and
merges.txt. Usage: python make_fixtures.py (from anywhere; overwrites fixtures/)
"""
import json
import pathlib
import random
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "parity"))
import tokenizer_kinds_parity as kinds  # noqa: E402
import tokenizers_parity as parity  # noqa: E402

VOCABULARY = 700
LINES = 100
SENTENCEPIECE = ("unigram_bytes", "unigram_symbols", "bpe_bytes", "bpe_symbols", "bpe_unused")


def write_case(file, tokenizer, line):
    ids = tokenizer.encode(line.decode("utf-8", errors="replace")).ids
    case = {
        "hex": line.hex(),
        "ids": ids,
        "text": tokenizer.decode(ids, skip_special_tokens=True),
        "kept": tokenizer.decode(ids, skip_special_tokens=False),
    }
    file.write(json.dumps(case) + "\n")


def strips(texts, size):
    """Makes a tokenizer with added tokens that take the spaces beside them.
    The normalizer of its pipeline leaves spaces alone."""
    tokenizer = parity.flavours(texts, size)
    tokenizer.normalizer = parity.normalizers.Lowercase()
    return tokenizer


def write_other_kinds(folder, rng, texts):
    """Writes the small vocabularies of the kinds without tokenizer.json.

    small.tiktoken has one file of lines per pattern; list.json is Megatron's list.
    """
    for kind in (kinds.patterns, kinds.megatron_list):
        for title, adapter, _ in kind(folder, texts):
            name = title.split()[-1] if kind is kinds.patterns else "megatron_list"
            if "\\" in name:
                name = "regex"
            with open(folder / f"tiktoken_{name}.jsonl", "w") as file:
                for _ in range(LINES // 3):
                    write_case(file, adapter, parity.fuzzed_line(rng)[:100])


def write_sentencepiece(folder, rng, texts):
    """Writes small SentencePiece models of several options, and what the package says."""
    scratch = tempfile.TemporaryDirectory()
    models = kinds.trained_sentencepiece(pathlib.Path(scratch.name), texts)
    for title, adapter, path in models:
        name = title.split()[1]
        if name not in SENTENCEPIECE:
            continue
        (folder / f"sp_{name}.model").write_bytes(path.read_bytes())
        with open(folder / f"sp_{name}.jsonl", "w") as file:
            for _ in range(LINES // 3):
                write_case(file, adapter, parity.fuzzed_line(rng)[:100])
        if name == "unigram_bytes":
            write_long_lines(folder, adapter)


def write_long_lines(folder, adapter):
    """Writes lines of thousands of tokens, whose sums of scores are rounded more and more."""
    rng = random.Random(11)
    with open(folder / "sp_unigram_bytes_long.jsonl", "w") as file:
        for letters in ("abcdehilnorstu", "etaoin'.,日本語 é"):
            words = ["".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(700)]
            write_case(file, adapter, " ".join(words).encode())


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
        parity.bert,
        parity.t5,
        parity.word_level,
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
    write_other_kinds(folder, rng, texts)
    write_sentencepiece(folder, rng, parity.corpus(rng))


if __name__ == "__main__":
    main()
