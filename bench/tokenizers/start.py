#!/usr/bin/env python3
"""Times the start of `megatron tokenize` with vocabularies of 131,072 tokens and no input.

The vocabularies are made of random words: tokenizer.json with byte-level BPE (269,443 merges, as
many as Llama 3 has for as many tokens), WordPiece, Unigram and WordLevel, SentencePiece models with
BPE and Unigram, and a tiktoken file. Each is read by a fresh process in every turn; times are those
of the CPU, and the target is their median.

Usage: start.py [--kind NAME …] [--turns 15] [--tokens 131072] [--smoke]
Environment: MEGATRON (default build/bin/megatron)
"""
import argparse
import base64
import itertools
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile

TARGET_MS = 60
LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
WEIGHTS = [1 / (place + 2) for place in range(26)]
SPACE = "\u2581"


def words(count, prefix, share):
    """Returns different words of about 7 letters, some of them behind a prefix."""
    found = {}
    while len(found) < count:
        size = min(16, max(1, round(random.gauss(7, 2.5))))
        word = "".join(random.choices(LETTERS, WEIGHTS, k=size))
        found[prefix + word if random.random() < share else word] = None
    return list(found)


def byte_alphabet():
    """Returns the characters that stand for the 256 bytes in byte-level BPE."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def bpe(count):
    """Tokens of one to four letters, and merges that make them in all ways, up to their number."""
    letters = sorted(LETTERS)
    tokens = byte_alphabet()
    for size in (2, 3):
        tokens += ["".join(token) for token in itertools.product(letters, repeat=size)]
    longer = {}
    while len(tokens) + len(longer) < count:
        longer["".join(random.choices(letters, k=4))] = None
    tokens = [*tokens, *longer][:count]
    known = set(tokens)
    merges = []
    for token in tokens[256:]:
        splits = [[token[:at], token[at:]] for at in range(1, len(token))]
        merges += [split for split in splits if known.issuperset(split)]
    wanted = min(len(merges), count * 269443 // 131072)
    kept = sorted(random.sample(range(len(merges)), wanted))
    return tokens, [merges[at] for at in kept]


def tokenizer_json(model, pre_tokenizer):
    return json.dumps({"pre_tokenizer": pre_tokenizer, "model": model}, ensure_ascii=False).encode()


def byte_level_bpe(count):
    tokens, merges = bpe(count)
    vocab = {token: number for number, token in enumerate(tokens)}
    splitter = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocab, "merges": merges}
    return tokenizer_json(model, {"type": "ByteLevel", **splitter})


def numbered(tokens, unknown):
    return {token: number for number, token in enumerate([unknown, *tokens])}


def wordpiece(count):
    vocab = numbered(words(count - 1, "##", 0.3), "[UNK]")
    model = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocab}
    return tokenizer_json(model, {"type": "BertPreTokenizer"})


def wordlevel(count):
    vocab = numbered(words(count - 1, "", 0), "[UNK]")
    model = {"type": "WordLevel", "unk_token": "[UNK]", "vocab": vocab}
    return tokenizer_json(model, {"type": "Whitespace"})


def unigram(count):
    pieces = [[word, -14 * random.random()] for word in words(count - 1, SPACE, 0.6)]
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], *pieces]}
    splitter = {"replacement": SPACE, "prepend_scheme": "always", "split": True}
    return tokenizer_json(model, {"type": "Metaspace", **splitter})


def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def message(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def sentencepiece(count, model_type):
    """Returns a ModelProto of sentencepiece_model.proto."""
    pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3)]
    pieces += [(word, 1) for word in words(count - 3, SPACE, 0.6)]
    content = b""
    for number, (text, kind) in enumerate(pieces):
        score = b"\x15" + struct.pack("<f", -0.0001 * number)
        content += message(1, message(1, text.encode()) + score + b"\x18" + varint(kind))
    content += message(2, b"\x18" + varint(model_type))
    return content + message(3, message(1, b"identity"))


def tiktoken(count):
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += [token.encode() for token in bpe(count)[0][256:]]
    lines = [base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)]
    return b"".join(lines)


KINDS = {
    "byte-level BPE": ("tokenizer.json", byte_level_bpe),
    "WordPiece": ("tokenizer.json", wordpiece),
    "Unigram": ("tokenizer.json", unigram),
    "WordLevel": ("tokenizer.json", wordlevel),
    "SentencePiece BPE": ("tokenizer.model", lambda count: sentencepiece(count, 2)),
    "SentencePiece Unigram": ("tokenizer.model", lambda count: sentencepiece(count, 1)),
    "tiktoken": ("vocabulary.tiktoken", tiktoken),
}


def start(program, model):
    """Returns the CPU time of one process in milliseconds."""
    command = [program, "tokenize", "--tokenizer-model", str(model)]
    if model.suffix == ".tiktoken":
        command += ["--tiktoken-pattern", "cl100k_base"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    return 1e3 * (usage.ru_utime + usage.ru_stime)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=131072)
    parser.add_argument("--smoke", action="store_true", help="one turn; times decide nothing")
    arguments = parser.parse_args()
    program = os.environ.get("MEGATRON", "build/bin/megatron")
    turns = 1 if arguments.smoke else arguments.turns
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        for kind in arguments.kind:
            name, make = KINDS[kind]
            random.seed(1)
            model = pathlib.Path(folder, name)
            model.write_bytes(make(arguments.tokens))
            times = [start(program, model) for _ in range(turns)]
            median = statistics.median(times)
            missed = missed or median > TARGET_MS
            result = {"vocabulary": kind, "tokens": arguments.tokens}
            result |= {"start_ms": round(median, 1), "least_ms": round(min(times), 1)}
            result |= {"target_ms": TARGET_MS, "met": median <= TARGET_MS}
            print(json.dumps(result), flush=True)
    sys.exit(1 if missed and not arguments.smoke else 0)


if __name__ == "__main__":
    main()
