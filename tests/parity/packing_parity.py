"""Compares --sft-packing-strategy and --document-packing-strategy, bfd and bfd_split, with TRL's
packing, and the order of packed documents with numpy's shuffle.

The number of sequences, how full each is, and the pieces that they hold: best fit leaves no choice
but between sequences with the same free space.
Only TRL's module data_utils.py is read, so that its dependencies are left out.
Usage: packing_parity.py [--cases 12] [--seed 1]    environment: MEGATRON
"""
import argparse
import importlib.metadata
import importlib.util
import json
import random
import sys
import tempfile
import types
from collections import Counter
from pathlib import Path

import numpy
import pyarrow

from program import run
from report import Report

PAD = 7


def trl_data_utils():
    """Loads the module with a stand-in for the package `datasets`, which packing does not need."""
    names = ("Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict")
    for module, members in (
        ("datasets", names),
        ("transformers", ("PreTrainedTokenizerBase", "ProcessorMixin")),
    ):
        stand_in = types.ModuleType(module)
        for name in members:
            setattr(stand_in, name, type(name, (), {}))
        sys.modules[module] = stand_in
    path = importlib.metadata.distribution("trl").locate_file("trl/data_utils.py")
    spec = importlib.util.spec_from_file_location("trl_data_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_tokenizer(folder):
    """Writes a tokenizer with one token for each of seven letters, and <unk>."""
    added = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    vocabulary = {letter: number for number, letter in enumerate("abcdefg")}
    Path(folder, "tokenizer.json").write_text(
        json.dumps(
            dict(
                added_tokens=[dict(id=PAD, content="<unk>", **added)],
                model=dict(type="BPE", vocab=vocabulary, merges=[]),
            )
        )
    )


def random_lengths(draw, longest, number):
    kind = ("even", "short", "long", "few")[number % 4]
    sizes = {
        "even": lambda: draw.randint(1, longest),
        "short": lambda: 1 + int(draw.expovariate(8 / longest)),
        "long": lambda: 1 + int(draw.lognormvariate(0, 1) * longest / 2),
        "few": lambda: draw.choice((longest // 3 + 1, longest // 2 + 1, longest)),
    }
    return [max(1, sizes[kind]()) for _ in range(draw.randint(1, 3000))]


def our_rows(folder, length, strategy):
    lines = run(
        "dataset", "show", "--sft", "--data-path", f"{folder}/chat.jsonl", "--split", "1,0,0",
        "--tokenizer-model", f"{folder}/tokenizer.json", "--sft-tokenizer-prompt-format",
        "identity", "--sft-packing-strategy", strategy, "--seq-length", length, "--count", 10000,
    ).stdout.splitlines()  # fmt: skip
    rows = []
    for sample in map(json.loads, lines):
        ends = sample["cu_seqlens"]
        parts = [
            tuple(token for token in sample["tokens"][begin:end] if token != PAD)
            for begin, end in zip(ends, ends[1:])
        ]
        rows.append([part for part in parts if part])
    return rows


def their_rows(trl, conversations, length, strategy):
    column = pyarrow.array(conversations, pyarrow.list_(pyarrow.int64()))
    table = pyarrow.table({"input_ids": column})
    overflow = "truncate" if strategy == "bfd" else "split"
    packed = trl._pack_bfd(table, length, on_seq_length_overflow=overflow)
    rows = []
    for ids, sizes in zip(packed["input_ids"].to_pylist(), packed["seq_lengths"].to_pylist()):
        ends = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
        rows.append([tuple(ids[begin:end]) for begin, end in zip(ends, ends[1:])])
    return rows


def same_packing(ours, theirs):
    sums = [Counter(sum(map(len, row)) for row in rows) for rows in (ours, theirs)]
    pieces = [Counter(part for row in rows for part in row) for rows in (ours, theirs)]
    return len(ours) == len(theirs) and sums[0] == sums[1] and pieces[0] == pieces[1]


def waste_text(rows, length):
    waste = 1 - sum(map(sum, (map(len, row) for row in rows))) / (length * len(rows))
    return f"{len(rows)} sequences, {100 * waste:.1f} % padding"


def packed_documents(folder, length, strategy, seed):
    """Returns the documents of each sequence. Ids are at least 0, padding is -1."""
    lines = run(
        "dataset", "show", "--data-path", f"{folder}/documents_text_document", "--split", "1,0,0",
        "--document-packing-strategy", strategy, "--seq-length", length, "--seed", seed,
        "--count", 10000,
    ).stdout.splitlines()  # fmt: skip
    rows = []
    for sample in map(json.loads, lines):
        ends = sample["cu_seqlens"]
        parts = [sample["tokens"][begin:end] for begin, end in zip(ends, ends[1:])]
        rows.append([tuple(token for token in part if token >= 0) for part in parts])
    return rows


def in_order_of_packing(rows, seed):
    """Undoes the shuffle."""
    order = numpy.arange(len(rows))
    numpy.random.RandomState(seed).shuffle(order)
    packed = [None] * len(rows)
    for place, row in zip(order, rows):
        packed[place] = row
    return packed


def check_documents(report, trl, draw, folder, number):
    length = draw.choice((4, 16, 64, 200))
    documents = [
        [draw.randrange(50) for _ in range(size)] for size in random_lengths(draw, length, number)
    ]
    with open(f"{folder}/in.jsonl", "w", encoding="utf-8") as file:
        for ids in documents:
            file.write(json.dumps({"text": " ".join(map(str, ids))}) + "\n")
    run("preprocess-data", "--input", f"{folder}/in.jsonl", "--output-prefix",
        f"{folder}/documents", "--tokenizer-type", "NullTokenizer", "--vocab-size", 64)  # fmt: skip
    # What is left out: documents without a label, and a last token that would be alone.
    taught = [
        ids[:-1] if len(ids) > length and len(ids) % length == 1 else ids
        for ids in documents
        if len(ids) > 1
    ]
    if not taught:
        return
    for strategy in ("bfd", "bfd_split"):
        ours = packed_documents(folder, length, strategy, 1)
        theirs = their_rows(trl, taught, length, strategy)
        again = packed_documents(folder, length, strategy, 2)
        is_shuffled = in_order_of_packing(ours, 1) == in_order_of_packing(again, 2)
        report.result(
            f"packing {number}: {len(documents)} documents, sequences of {length}, {strategy}",
            same_packing(ours, theirs) and is_shuffled,
            waste_text(ours, length),
        )


def check(report, trl, draw, folder, number):
    length = draw.choice((4, 16, 64, 200))
    conversations = [
        [draw.randrange(PAD) for _ in range(size)] for size in random_lengths(draw, length, number)
    ]
    write_tokenizer(folder)
    with open(f"{folder}/chat.jsonl", "w", encoding="utf-8") as file:
        for ids in conversations:
            content = "".join("abcdefg"[token] for token in ids)
            file.write(json.dumps({"messages": [dict(role="user", content=content)]}) + "\n")
    for strategy in ("bfd", "bfd_split"):
        ours = our_rows(folder, length, strategy)
        theirs = their_rows(trl, conversations, length, strategy)
        report.result(
            f"packing {number}: {len(conversations)} conversations, sequences of {length}, "
            f"{strategy}",
            same_packing(ours, theirs),
            waste_text(ours, length),
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report, draw, trl = Report(), random.Random(options.seed), trl_data_utils()
    for number in range(options.cases):
        with tempfile.TemporaryDirectory() as folder, report.guard(f"packing {number}"):
            check(report, trl, draw, folder, number)
            check_documents(report, trl, draw, folder, number)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
