"""Compares `megatron tokenizer train` with the trainers of the real `tokenizers` package.

Both train on the same files: the text of Python's documentation and of its standard library, words
of few letters that make merges collide, and text of many scripts. tokenizer.json must be the same
byte for byte for BPE and WordPiece. The package numbers the parts ##x of WordPiece at random, so
these are given as special tokens, in one order, to both; without them the tokens must agree but for
a few ties. For Unigram the pieces must be the same; scores may differ by rounding, and those of
characters that are no pieces follow a random order there. What is trained must load in
`transformers` and give the ids of `megatron tokenize`.

Usage: tokenizer_training_parity.py [--rounds 60] [--seed 1]
Environment: MEGATRON (default build/bin/megatron)
"""
import argparse
import json
import pathlib
import pydoc_data.topics
import random
import sys
import tempfile

import program
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers_parity import LLAMA3, QWEN2

BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PATTERNS = {"gpt2": None, "llama3": LLAMA3, "qwen": QWEN2, r"\w+|\W": r"\w+|\W"}
failures = 0


def report(name, is_same, detail=""):
    global failures
    failures += not is_same
    print(f"{'ok  ' if is_same else 'FAIL'} {name}{'' if is_same else ': ' + detail}", flush=True)


def train_ours(folder, files, *flags):
    program.run("tokenizer", "train", "--output", folder, *flags, *files)
    return (pathlib.Path(folder) / "tokenizer.json").read_text()


def byte_bpe(files, pattern, **options):
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = pattern and pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([split, byte_level]) if pattern else byte_level
    )
    tokenizer.decoder = decoders.ByteLevel()
    options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), **options}
    tokenizer.train(files, trainers.BpeTrainer(show_progress=False, **options))
    return tokenizer.to_str(pretty=True)


def wordpiece(files, size, special_tokens):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=special_tokens, show_progress=False
    )
    tokenizer.train(files, trainer)
    return tokenizer


def unigram(files, size):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=["<s>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train(files, trainer)
    return tokenizer


def special_flags(tokens):
    return [word for token in tokens for word in ("--special-tokens", token)]


def random_text(generator):
    letters = generator.choice(["ab", "abc", "abé 日", "ab x", "the quick fox", " \n\tab'sll12"])
    words = [
        "".join(generator.choice(letters) for _ in range(generator.randint(1, 12)))
        for _ in range(30)
    ]
    text = " ".join(generator.choice(words) for _ in range(generator.choice([30, 300])))
    return text.replace("b", "\r\n", generator.choice([0, 3]))


def check_random_bpe(folder, rounds, generator):
    """Small texts, whose merges collide and tie, with random options."""
    file = str(folder / "random.txt")
    same = collided = 0
    for _ in range(rounds):
        pathlib.Path(file).write_bytes(random_text(generator).encode())
        size, pattern = generator.choice([280, 400, 1000]), generator.choice(list(PATTERNS))
        options, flags = {"vocab_size": size}, ["--vocab-size", size, "--pre-tokenizer", pattern]
        if generator.random() < 0.5:
            options["min_frequency"] = generator.choice([1, 2, 3, 10])
            flags += ["--min-frequency", options["min_frequency"]]
        if generator.random() < 0.3:
            options["max_token_length"] = generator.choice([2, 3, 5])
            flags += ["--max-token-length", options["max_token_length"]]
        if generator.random() < 0.5:
            options["special_tokens"] = ["<e>", "ab", "Ġ"]
            flags += special_flags(options["special_tokens"])
        if generator.random() < 0.3:
            options["initial_alphabet"] = []
            flags += ["--initial-alphabet", "text"]
        theirs = byte_bpe([file], PATTERNS[pattern], **options)
        same += theirs == train_ours(folder / "ours", [file], *flags)
        model = json.loads(theirs)["model"]
        collided += len(model["merges"]) > len(model["vocab"]) - 256
    report(
        f"byte-level BPE of {rounds} small texts, of which merges collide in {collided}",
        same == rounds and collided > 0,
        f"{rounds - same} differ",
    )


def check_large_bpe(folder, files):
    for pattern in ("gpt2", "llama3"):
        theirs = byte_bpe(files, PATTERNS[pattern], vocab_size=8000, special_tokens=["<|end|>"])
        flags = ["--vocab-size", 8000, "--special-tokens", "<|end|>", "--pre-tokenizer", pattern]
        for workers in (1, 3):
            ours = train_ours(folder / "bpe", files, *flags, "--workers", workers)
            report(f"byte-level BPE, {pattern}, {workers} threads", ours == theirs, "files differ")


def check_wordpiece(folder, files):
    free = wordpiece(files, 4000, BERT_TOKENS)
    flags = ["--model", "wordpiece", "--vocab-size", 4000]
    ours = json.loads(train_ours(folder / "wp", files, *flags))
    differing = len(set(free.get_vocab()) ^ set(ours["model"]["vocab"]))
    report("WordPiece, tokens but for ties", differing <= 40, f"{differing} tokens differ")
    parts = sorted(t for t in free.get_vocab() if t.startswith("##") and len(t) == 3)
    special = BERT_TOKENS + [part for part in parts if part != "##,"]
    theirs = wordpiece(files, 4000, special).to_str(pretty=True)
    flags = ["--model", "wordpiece", "--vocab-size", 4000, *special_flags(special)]
    report(
        "WordPiece, parts in one order",
        train_ours(folder / "wp-parts", files, *flags) == theirs,
        "files differ",
    )


def check_unigram(folder, files):
    for size in (800, 4000):
        theirs = dict(json.loads(unigram(files, size).to_str())["model"]["vocab"])
        flags = ["--model", "unigram", "--vocab-size", size]
        flags += special_flags(["<s>", "</s>", "<unk>"])
        text = train_ours(folder / "unigram", files, *flags)
        again = train_ours(folder / "unigram", files, *flags, "--workers", 1)
        ours = dict(json.loads(text)["model"]["vocab"])
        differing = set(ours) ^ set(theirs)
        report(f"Unigram, {size} pieces", not differing, f"{sorted(differing)[:10]}")
        far = [p for p in theirs if len(p) > 1 and abs(theirs[p] - ours.get(p, 0)) > 1e-9]
        report(f"Unigram, {size} pieces, scores", not far, f"{far[:10]}")
        report(f"Unigram, {size} pieces, any number of threads", again == text)


def check_loading(folder, files):
    from transformers import AutoTokenizer

    lines = pathlib.Path(files[0]).read_text().splitlines()[:300]
    for name in ("bpe", "wp", "unigram"):
        theirs = AutoTokenizer.from_pretrained(folder / name)
        ours = program.run(
            "tokenize", "--tokenizer-model", folder / name, stdin="\n".join(lines) + "\n"
        ).stdout.splitlines()
        same = [theirs(line).input_ids for line in lines] == [json.loads(line) for line in ours]
        report(f"{name} loads in transformers and gives the same ids", same)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        english, code = folder / "english.txt", folder / "code.txt"
        english.write_text("\n".join(pydoc_data.topics.topics.values()))
        sources = sorted(pathlib.Path(json.__file__).parents[1].glob("*.py"))
        code.write_text("".join(source.read_text() for source in sources[:60]))
        files = [str(english), str(code)]
        check_random_bpe(folder, arguments.rounds, random.Random(arguments.seed))
        check_large_bpe(folder, files)
        check_wordpiece(folder, files)
        check_unigram(folder, files)
        check_loading(folder, files)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
