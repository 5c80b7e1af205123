#!/usr/bin/env python3
"""Times `megatron tokenizer train` against the trainers of `tokenizers`, in turns of one run.

The text is English (Python's documentation, the licences and documents of the system) and source
code (Python's library and site-packages). Ours reads and writes files and starts a process; the
package's time is that of train() alone. Times are wall-clock; memory is the peak of a process.

Usage: train.py [--text FILE] [--turns 3] [--megabytes 40] [--vocab-size 32000]
Environment: MEGATRON (default build/bin/megatron)
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

KINDS = ("byte-bpe", "wordpiece", "unigram")


def write_corpus(file, megabytes):
    pathlib.Path(file).write_text(corpus(megabytes))


def corpus(megabytes):
    import pydoc_data.topics

    parts = ["\n".join(pydoc_data.topics.topics.values())]
    left = megabytes * 1_000_000 - len(parts[0])
    folders = [("/usr/share/common-licenses", "*"), ("/usr/share/doc", "*")]
    folders += [(sysconfig.get_path(name), "*.py") for name in ("stdlib", "purelib")]
    for folder, pattern in folders:
        for path in sorted(pathlib.Path(folder).rglob(pattern)):
            if left <= 0:
                return "".join(parts)
            if not path.is_file() or path.suffix in (".gz", ".png"):
                continue
            try:
                parts.append(path.read_text())
            except (OSError, UnicodeDecodeError):
                continue
            left -= len(parts[-1])
    return "".join(parts)


def train_theirs(kind, size, file):
    """Trains with the package and prints the seconds. It runs in a process of its own."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    if kind == "byte-bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=special, show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.Unigram())
        spaces = normalizers.Replace(Regex(" {2,}"), " ")
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Nmt(), normalizers.NFKC(), spaces]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=size, unk_token="<unk>", show_progress=False
        )
    begin = time.perf_counter()
    tokenizer.train([file], trainer)
    print(time.perf_counter() - begin)


def run(command, threads):
    """Returns what a command prints, its seconds and its peak of memory in MB."""
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    )
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed")
    return output, time.perf_counter() - begin, usage.ru_maxrss / 1000


def measure(kind, threads, arguments, program, text, folder):
    our_times, their_times, memory = [], [], {}
    for _ in range(arguments.turns):
        flags = ["--model", kind, "--vocab-size", str(arguments.vocab_size)]
        flags += ["--workers", str(threads), "--output", folder, text]
        _, seconds, memory["megatron"] = run([program, "tokenizer", "train", *flags], threads)
        our_times.append(seconds)
        peer = [sys.executable, __file__, "--theirs", kind, "--text", text]
        peer += ["--vocab-size", str(arguments.vocab_size)]
        output, _, memory["tokenizers"] = run(peer, threads)
        their_times.append(float(output))
    ours, theirs = statistics.median(our_times), statistics.median(their_times)
    return {
        "model": kind,
        "threads": threads,
        "megatron_s": round(ours, 2),
        "tokenizers_s": round(theirs, 2),
        "times_as_fast": round(theirs / ours, 1),
        "megatron_mb": round(memory["megatron"]),
        "tokenizers_mb": round(memory["tokenizers"]),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--vocab-size", type=int, default=32000)
    parser.add_argument("--models", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--theirs", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.theirs:
        return train_theirs(arguments.theirs, arguments.vocab_size, arguments.text)
    program = os.environ.get("MEGATRON", "build/bin/megatron")
    with tempfile.TemporaryDirectory() as folder:
        text = arguments.text
        if text is None:
            text = os.path.join(folder, "corpus.txt")
            # In a process of its own: the peak of memory of a parent counts for its children.
            writer = multiprocessing.Process(target=write_corpus, args=(text, arguments.megabytes))
            writer.start()
            writer.join()
        for kind in arguments.models:
            for threads in (1, 2):
                result = measure(kind, threads, arguments, program, text, folder)
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
