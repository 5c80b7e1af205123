"""Writes small random .bin/.idx corpora.

It also says, through the real megatron-core, which samples training sees."""
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import mcore_cpu


def write_indexed_dataset(prefix, documents):
    """Megatron's MMIDIDX format, version 1, int32 tokens, one sequence per document."""
    lengths = np.array([len(document) for document in documents], dtype=np.int32)
    pointers = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64) * 4]).astype(np.int64)
    Path(f"{prefix}.bin").write_bytes(
        b"".join(np.asarray(document, dtype=np.int32).tobytes() for document in documents)
    )
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, len(documents), len(documents) + 1)
    boundaries = np.arange(len(documents) + 1, dtype=np.int64)
    Path(f"{prefix}.idx").write_bytes(
        header + lengths.tobytes() + pointers.tobytes() + boundaries.tobytes()
    )


class NullTokenizer:
    """What megatron-core's dataset asks of a tokenizer: vocabulary N, eod N − 1, pad −1."""

    def __init__(self, vocab_size):
        self.unique_identifiers = {"class": "NullTokenizer", "vocab_size": vocab_size}
        self.vocab_size, self.eod, self.pad = vocab_size, vocab_size - 1, -1

    @property
    def unique_id(self):
        return f"NullTokenizer-{self.vocab_size}"


def training_samples(prefix, *, seq_length, seed, num_samples, vocab_size):
    """Returns the first rows of seq_length + 1 ids.
    megatron-core's GPTDataset gives them with --split 1,0,0."""
    mcore_cpu.init()
    from megatron.core.datasets.blended_megatron_dataset_builder import (
        BlendedMegatronDatasetBuilder,
    )
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    config = GPTDatasetConfig(
        random_seed=seed,
        sequence_length=seq_length,
        blend=([str(prefix)], None),
        split="1,0,0",
        tokenizer=NullTokenizer(vocab_size),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        path_to_cache=f"{prefix}-reference-cache",
    )
    train, _, _ = BlendedMegatronDatasetBuilder(
        GPTDataset, (num_samples, 0, 0), lambda: True, config
    ).build()
    rows = [
        np.concatenate([train[index]["tokens"].numpy(), train[index]["labels"].numpy()[-1:]])
        for index in range(num_samples)
    ]
    return np.stack(rows)


@dataclass
class Corpus:
    """A corpus on disk and the rows its first global batch holds."""

    prefix: str
    vocab_size: int
    seq_length: int
    num_samples: int
    seed: int
    rows: np.ndarray


def random_documents(vocab_size, seq_length, num_samples):
    """Random documents of uneven length, eod included, enough for num_samples samples."""
    generator = np.random.default_rng(vocab_size * 1000 + seq_length)
    documents, total = [], 0
    while total < 2 * num_samples * (seq_length + 1):
        length = int(generator.integers(3, 3 * seq_length))
        documents.append(np.append(generator.integers(0, vocab_size - 1, length), vocab_size - 1))
        total += length + 1
    return documents


def make(directory, *, vocab_size, seq_length, num_samples=4, seed=1234, documents=None):
    """Writes `documents`, by default random ones, which must give num_samples samples."""
    documents = documents or random_documents(vocab_size, seq_length, num_samples)
    prefix = str(Path(directory) / f"corpus-{vocab_size}-{seq_length}")
    write_indexed_dataset(prefix, documents)
    rows = training_samples(
        prefix, seq_length=seq_length, seed=seed, num_samples=num_samples, vocab_size=vocab_size
    )
    return Corpus(prefix, vocab_size, seq_length, num_samples, seed, rows)
