"""Compares long sequences divided over ranks with the real transformers on whole ones.

It compares the loss and every gradient, for each exchange of context parallelism, and for packed
documents, which transformers is given as positions that restart, or one by one."""
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

import corpus
import hf_models
import hf_variants
import program
from report import Report

torch.set_num_threads(1)
VOCAB_SIZE = 131
FIRST, EOD = 0, VOCAB_SIZE - 1  # the first id of each packed document, and the last one of some
SIZES = dict(
    hf_variants.COMMON,
    vocab_size=VOCAB_SIZE,
    hidden_size=32,
    num_hidden_layers=2,
    intermediate_size=48,
    max_position_embeddings=1024,
)
GROUPED = dict(SIZES, num_key_value_heads=2)
MODELS = {
    "llama": LlamaConfig(**SIZES),
    "llama gqa llama3 rope": LlamaConfig(**GROUPED, rope_parameters=hf_variants.LLAMA3_SCALING),
    "qwen2": Qwen2Config(**GROUPED),
    "qwen3": Qwen3Config(**GROUPED, head_dim=12),
    "mistral sliding window": MistralConfig(**GROUPED, sliding_window=150),
}


def layout(cp, *comm_type, tp=1, dp=1):
    """The ranks and flags of a layout, named by what it divides."""
    flags = ["--context-parallel-size", cp] if cp > 1 else []
    if comm_type:
        flags += ["--cp-comm-type", *comm_type]
    if "a2a+p2p" in comm_type:
        flags += ["--hierarchical-context-parallel-sizes", 2, cp // 2]
    if tp > 1:
        flags += ["--tensor-model-parallel-size", tp, "--sequence-parallel"]
    if dp > 1:
        flags += ["--use-distributed-optimizer"]
    others = [f"{name} {size}" for name, size in (("tp", tp), ("dp", dp)) if size > 1]
    return " ".join([f"cp {cp}", *comm_type, *others]), cp * tp * dp, flags


# Model, positions, layouts. Every exchange meets every kind of attention.
LONG = [
    (
        "llama",
        512,
        [layout(2, "p2p"), layout(4, "all_gather"), layout(4, "a2a"), layout(4, "a2a+p2p")],
    ),
    ("llama gqa llama3 rope", 1024, [layout(4, "p2p"), layout(2, "all_gather")]),
    ("qwen2", 512, [layout(4, "p2p"), layout(2, "a2a"), layout(2, "p2p", tp=2)]),
    ("qwen3", 512, [layout(2, "all_gather", "a2a")]),
    (
        "mistral sliding window",
        512,
        [layout(4, "p2p"), layout(2, "all_gather"), layout(2, "a2a"), layout(4, "a2a+p2p")],
    ),
]
PACKED = [
    ("llama", [layout(1), layout(2, "p2p"), layout(4, "p2p"), layout(4, "a2a+p2p")]),
    ("qwen2", [layout(2, "all_gather"), layout(4, "a2a"), layout(2, "p2p", dp=2)]),
    ("mistral sliding window", [layout(1), layout(2, "a2a"), layout(4, "p2p")]),
]
AS_DOCUMENTS = ["--dataloader-inter-document-masking"]
AFTER_EOD = ["--reset-position-ids", "--reset-attention-mask"]


class Packing:
    """Says where sequences begin in rows: where is_begin(tokens) is true, and at the row's first
    token."""

    def __init__(self, is_begin):
        self.is_begin_ = is_begin

    def spans(self, row):
        """(begin, end) of each sequence of a row."""
        begins = self.is_begin_(row)
        begins[0] = True
        firsts = np.flatnonzero(begins).tolist()
        return list(zip(firsts, [*firsts[1:], len(row)]))

    def by_positions(self, model, tokens):
        """Logits of whole rows. transformers finds the sequences where positions restart."""
        positions = [
            np.concatenate([np.arange(end - begin) for begin, end in self.spans(row)])
            for row in tokens.numpy()
        ]
        return model(
            tokens, position_ids=torch.as_tensor(np.stack(positions)), use_cache=False
        ).logits

    def one_by_one(self, model, tokens):
        """Logits of each sequence that transformers saw alone."""

        def logits_of(row):
            spans = self.spans(row.numpy())
            return torch.cat([model(row[None, begin:end]).logits[0] for begin, end in spans])

        return torch.stack([logits_of(row) for row in tokens])


BY_DOCUMENT = Packing(lambda row: row == FIRST)
BY_EOD = Packing(lambda row: np.append(False, row[:-1] == EOD))


def short_documents(seq_length, num_samples):
    """Documents of 1 to 200 tokens that begin with FIRST. Every second one ends with EOD."""
    generator = np.random.default_rng(5)
    documents, total = [], 0
    while total < 2 * num_samples * (seq_length + 1):
        body = generator.integers(FIRST + 1, EOD, int(generator.integers(0, 200)))
        end = [EOD] if len(documents) % 2 == 0 else []
        documents.append(np.concatenate([[FIRST], body, end]))
        total += len(documents[-1])
    return documents


def check_layouts(report, name, directory, samples, expected, layouts, extra=()):
    """One SGD step in each layout against the loss and the gradients of transformers."""
    loss, gradients = expected
    before = program.read_hf(directory)
    for layout_name, ranks, flags in layouts:
        label = f"{name}, {layout_name}"
        with report.guard(label), tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            measured = program.sgd_step(
                samples, directory, work / "stepped", [*flags, *extra], ranks=ranks
            )
            after = program.read_hf(program.convert(work / "stepped", work / "hf", "hf"))
            report.close(f"{label}, loss", measured, loss)
            report.close_tensors(f"{label}, gradients", program.gradients(before, after), gradients)


def check_long(report, work):
    for name, seq_length, layouts in LONG:
        with report.guard(f"{name}, {seq_length} positions"):
            directory = work / f"{name} {seq_length}"
            model = hf_models.save(hf_variants.Variant(name, MODELS[name]), directory)
            samples = corpus.make(work, vocab_size=VOCAB_SIZE, seq_length=seq_length)
            expected = hf_models.loss_and_gradients(model, samples.rows)
            check_layouts(
                report, f"{name}, {seq_length} positions", directory, samples, expected, layouts
            )


def check_packed(report, work):
    seq_length, num_samples = 512, 4
    samples = corpus.make(
        work,
        vocab_size=VOCAB_SIZE,
        seq_length=seq_length,
        num_samples=num_samples,
        documents=short_documents(seq_length, num_samples),
    )
    for name, layouts in PACKED:
        with report.guard(f"{name}, packed"):
            directory = work / f"{name} packed"
            model = hf_models.save(hf_variants.Variant(name, MODELS[name]), directory)
            packed = hf_models.loss_and_gradients(model, samples.rows, BY_DOCUMENT.by_positions)
            check_layouts(
                report, f"{name}, packed", directory, samples, packed, layouts, AS_DOCUMENTS
            )
            if name != "llama":
                continue
            alone = hf_models.loss_and_gradients(model, samples.rows, BY_DOCUMENT.one_by_one)
            check_layouts(
                report,
                f"{name}, packed, beside each document alone",
                directory,
                samples,
                alone,
                [layout(4, "all_gather")],
                AS_DOCUMENTS,
            )
            after_eod = hf_models.loss_and_gradients(model, samples.rows, BY_EOD.by_positions)
            check_layouts(
                report,
                f"{name}, documents masked after eod",
                directory,
                samples,
                after_eod,
                [layout(1), layout(2, "a2a"), layout(4, "p2p")],
                AFTER_EOD,
            )


def main():
    report = Report()
    for name, check in (("long", check_long), ("packed", check_packed)):
        with tempfile.TemporaryDirectory() as work, report.guard(name):
            check(report, Path(work))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
