"""Peer: the real megatron-core datasets.

`write` makes .bin/.idx, `samples` gives the rows that training would see, split by split."""
import numpy as np
import torch

import mcore_cpu

SPLITS = ("train", "valid", "test")


def write(prefix, documents, dtype=np.uint16):
    """One sequence per document; a document may also be a list of sequences."""
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
    for document in documents:
        sequences = (
            document
            if document and isinstance(document[0], list)
            else [document]
            if document
            else []
        )
        flat = [token for sequence in sequences for token in sequence]
        builder.add_document(
            torch.tensor(np.asarray(flat, dtype=np.int64)),
            [len(sequence) for sequence in sequences],
        )
    builder.finalize(f"{prefix}.idx")


class Tokenizer:
    """Has what megatron-core's datasets ask of a tokenizer.
    The vocabulary is N, the end of document is N − 1, and there is no padding."""

    unique_identifiers = {"class": "Tokenizer"}

    def __init__(self, vocab_size):
        self.vocab_size, self.eod, self.pad = vocab_size, vocab_size - 1, -1


def build(
    *,
    seq_length,
    seed,
    sizes,
    blend=None,
    blend_per_split=None,
    split=None,
    cache=None,
    vocab_size=1000,
    surplus=0.005,
):
    """Returns (train, valid, test) as BlendedMegatronDatasetBuilder makes them.
    Blends are (prefixes, weights or None)."""
    mcore_cpu.init()
    from megatron.core.datasets.blended_megatron_dataset_builder import (
        BlendedMegatronDatasetBuilder,
    )
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig, MockGPTDataset

    config = GPTDatasetConfig(
        random_seed=seed,
        sequence_length=seq_length,
        blend=blend,
        blend_per_split=blend_per_split,
        split=split,
        path_to_cache=cache,
        tokenizer=Tokenizer(vocab_size),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        mid_level_dataset_surplus=surplus,
    )
    kind = GPTDataset if blend or blend_per_split else MockGPTDataset
    return BlendedMegatronDatasetBuilder(kind, sizes, lambda: True, config).build()


def text(dataset, index):
    """The seq_length + 1 ids of one sample."""
    if hasattr(dataset, "dataset_index"):
        return text(
            dataset.datasets[dataset.dataset_index[index]], dataset.dataset_sample_index[index]
        )
    return dataset._query_document_sample_shuffle_indices(index)[0].tolist()
