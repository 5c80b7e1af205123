"""Compares `dataset show --dataset-type bert|t5` with megatron-core's datasets of masked words.

Every field of every sample of random corpora of sentences: splits, several epochs, seeds, blends,
sentences that are too long, documents that are too short, word pieces, decoder lengths.
Usage: masked_parity.py [--cases 16] [--seed 1]    environment: MEGATRON
"""
import argparse
import json
import random
import sys
import tempfile

import numpy as np

import mcore_cpu
import mcore_data
from program import run
from report import Report

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


class Tokenizer:
    """Has what megatron-core's masked datasets ask of BERT's tokenizer.
    As in Megatron-LM, [BOS] and [EOS] and then T5's sentinels follow the vocabulary."""

    unique_identifiers = {"class": "Tokenizer"}

    def __init__(self, tokens, extra_ids):
        self.inv_vocab = dict(enumerate(tokens + ["[BOS]", "[EOS]"]))
        self.pad, _, self.cls, self.sep, self.mask = range(5)
        self.bos, self.eos = len(tokens), len(tokens) + 1
        self.additional_special_tokens_ids = [len(tokens) + 2 + i for i in range(extra_ids)]


def random_vocabulary(draw):
    words = [f"w{number}" for number in range(draw.randint(20, 300))]
    pieces = [f"##p{number}" for number in range(draw.choice((0, 5, 200)))]
    mixed = words + pieces
    draw.shuffle(mixed)
    return SPECIALS + mixed


def random_documents(draw, vocab_size):
    longest = draw.choice((3, 12, 40))
    length = lambda: draw.randint(1, longest) if draw.random() < 0.995 else draw.choice((512, 513))
    sentence = lambda: [draw.randrange(5, vocab_size) for _ in range(length())]
    return [
        [sentence() for _ in range(draw.choice((0, 1, 2, 3, 5, 20)))]
        for _ in range(draw.randint(60, 200))
    ]


def build_peer(kind, tokenizer, blend, split, sizes, seq_length, decoder_length, flags, cache):
    from megatron.core.datasets.bert_dataset import (
        BERTMaskedWordPieceDataset,
        BERTMaskedWordPieceDatasetConfig,
    )
    from megatron.core.datasets.blended_megatron_dataset_builder import (
        BlendedMegatronDatasetBuilder,
    )
    from megatron.core.datasets.t5_dataset import (
        T5MaskedWordPieceDataset,
        T5MaskedWordPieceDatasetConfig,
    )

    is_t5 = kind == "t5"
    # The settings of Megatron-LM's pretrain_bert.py and pretrain_t5.py.
    common = dict(
        random_seed=flags["seed"],
        sequence_length=seq_length,
        blend=blend,
        split=split,
        path_to_cache=cache,
        tokenizer=tokenizer,
        masking_probability=flags["mask_prob"],
        short_sequence_probability=flags["short_seq_prob"],
        masking_max_ngram=flags.get("max_ngram", 10 if is_t5 else 3),
        masking_do_full_word=flags.get("whole_words", True),
        masking_do_permutation=False,
        masking_use_longer_ngrams=flags.get("longer_ngrams", False),
        masking_use_geometric_distribution=is_t5,
    )
    if is_t5:
        config = T5MaskedWordPieceDatasetConfig(sequence_length_decoder=decoder_length, **common)
        dataset = T5MaskedWordPieceDataset
    else:
        config = BERTMaskedWordPieceDatasetConfig(classification_head=flags["head"], **common)
        dataset = BERTMaskedWordPieceDataset
    return BlendedMegatronDatasetBuilder(dataset, sizes, lambda: True, config).build()


def fields(sample):
    plain = lambda value: value.tolist() if isinstance(value, np.ndarray) else int(value)
    return {name: plain(value) for name, value in sample.items() if name != "dataset_id"}


def compare(report, name, theirs, arguments):
    compared = masked = 0
    for dataset, split in zip(theirs, mcore_data.SPLITS):
        if dataset is None:
            continue
        lines = run("dataset", "show", *arguments, "--split-name", split, "--count", 100000)
        ours = [json.loads(line) for line in lines.stdout.splitlines()]
        if len(ours) != len(dataset):
            detail = f"{split}: {len(ours)} samples instead of {len(dataset)}"
            return report.result(name, False, detail)
        for index, sample in enumerate(ours):
            expected = {"index": index, **fields(dataset[index])}
            if sample != expected:
                wrong = [key for key in expected if sample.get(key) != expected[key]]
                return report.result(name, False, f"{split} sample {index}: {wrong} differ")
            masked += sum(expected["loss_mask"])
        compared += len(ours)
    report.result(name, compared > 0, f"{compared} samples, {masked} tokens predicted")


def check(report, draw, folder, number):
    kind = ("bert", "t5")[number % 2]
    tokens = random_vocabulary(draw)
    vocab = f"{folder}/vocab.txt"
    with open(vocab, "w", encoding="utf-8") as file:
        file.write("".join(token + "\n" for token in tokens))
    tokenizer = Tokenizer(tokens, 300)
    prefixes = [f"{folder}/corpus{i}" for i in range(draw.choice((1, 1, 3)))]
    for prefix in prefixes:
        mcore_data.write(prefix, random_documents(draw, len(tokens)))
    weights = [draw.random() + 0.1 for _ in prefixes] if len(prefixes) > 1 else None
    seq_length = draw.choice((16, 64, 128, 512))
    decoder_length = 600
    split = draw.choice(("80,10,10", "1,0,0", "50,30,20"))
    sizes = [draw.randint(1, 600), draw.randint(1, 60), draw.randint(1, 60)]
    if split == "1,0,0":
        sizes[1:] = [0, 0]
    flags = dict(
        seed=draw.choice((1, 1234, 2**31 - 2, draw.randrange(1, 2**31 - 1))),
        mask_prob=draw.choice((0.15, 0.15, 0.3, 0.05)),
        short_seq_prob=draw.choice((0.1, 0.0, 0.5, 1.0)),
        head=draw.random() < 0.7,
    )
    theirs = build_peer(
        kind, tokenizer, (prefixes, weights), split, sizes, seq_length, decoder_length, flags,
        f"{folder}/peer",
    )  # fmt: skip
    arguments = [
        "--dataset-type", kind, "--seq-length", seq_length, "--seed", flags["seed"], "--split",
        split, "--num-samples", ",".join(map(str, sizes)), "--tokenizer-type",
        "BertWordPieceLowerCase", "--vocab-file", vocab, "--mask-prob", flags["mask_prob"],
        "--short-seq-prob", flags["short_seq_prob"], "--data-path",
    ]  # fmt: skip
    for position, prefix in enumerate(prefixes):
        arguments += [prefix] if weights is None else [repr(weights[position]), prefix]
    if kind == "t5":
        arguments += ["--decoder-seq-length", decoder_length, "--vocab-extra-ids", 300]
    elif not flags["head"]:
        arguments.append("--bert-no-binary-head")
    name = f"masked {number}: {kind}, {len(prefixes)} corpora, {split}, seq {seq_length}, {flags}"
    compare(report, name, theirs, arguments)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    mcore_cpu.init()
    report, draw = Report(), random.Random(options.seed)
    for number in range(options.cases):
        with tempfile.TemporaryDirectory() as folder, report.guard(f"masked {number}"):
            check(report, draw, folder, number)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
