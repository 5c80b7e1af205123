"""Compares our models with experts with those of the real megatron-core 0.15 on a CPU.

It compares the loss, the auxiliary losses, every gradient and the updated expert biases, on one
rank."""
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import checkpoint_files
import corpus
import mcore_models
import mcore_moe
import mcore_moe_models
import program
from mcore_parity import random_checkpoint as checkpoint_after
from report import Report

torch.set_num_threads(1)
LEARNING_RATE = 0.02
MICRO_BATCH_SIZE, NUM_SAMPLES = 2, 6  # program.sgd_step() runs microbatches of two


def make_corpus(work, vocab_size=mcore_models.VOCAB_SIZE, num_samples=NUM_SAMPLES):
    return corpus.make(
        work,
        vocab_size=vocab_size,
        seq_length=mcore_models.SEQ_LENGTH,
        num_samples=num_samples,
    )


def random_checkpoint(variant, samples, directory):
    """With smaller steps than those of dense models.
    Where the choice of experts makes a model too steep, float32 has no five digits."""
    return checkpoint_after(variant, samples, directory, learning_rate=LEARNING_RATE)


def our_step(samples, variant, initial, stepped, extra=(), ranks=1):
    """Runs one SGD step; returns the loss, the auxiliary losses and what compare() takes."""
    flags = [*mcore_models.COMMON_FLAGS, *variant.flags, "--finetune", *extra]
    output = program.sgd_output(samples, initial, stepped, flags, ranks=ranks)
    losses = {
        name: values[0]
        for name in mcore_moe.LOSS_NAMES
        if (values := program.log_values(output, name))
    }
    before, after = (checkpoint_files.read_model(path) for path in (initial, stepped))
    changes = program.gradients(before, after)
    # The bias of an expert has no gradient; the step moves it.
    changes.update({name: after[name] for name in after if name.endswith("expert_bias")})
    return program.log_values(output, "lm loss")[0], losses, changes


def compare(report, name, ours, theirs):
    """Compares (loss, auxiliary losses, gradients and expert biases)."""
    report.close(f"{name}, loss", ours[0], theirs[0])
    if theirs[1] or ours[1]:
        report.close_tensors(f"{name}, auxiliary losses", ours[1], theirs[1])
    report.close_tensors(f"{name}, gradients", ours[2], theirs[2])


def their_step(variant, weights, rows, micro_batch_size=MICRO_BATCH_SIZE):
    model = mcore_moe.build(variant)
    mcore_moe.fill(model, weights)
    loss, losses = mcore_moe.step(model, rows, micro_batch_size)
    return (
        loss,
        losses,
        {name: mcore_moe.stacked(parts) for name, parts in mcore_moe.own_gradients(model).items()},
    )


def check_variant(report, variant, work):
    samples = make_corpus(work)
    weights = random_checkpoint(variant, samples, work / "initial")
    theirs = their_step(variant, weights, samples.rows)
    ours = our_step(samples, variant, work / "initial", work / "stepped")
    compare(report, variant.name, ours, theirs)


def main():
    report = Report()
    wanted = sys.argv[1:]
    for variant in mcore_moe_models.variants():
        if not wanted or variant.name in wanted:
            with tempfile.TemporaryDirectory() as work, report.guard(variant.name):
                check_variant(report, variant, Path(work))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
