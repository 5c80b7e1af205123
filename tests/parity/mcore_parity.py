"""Compares our GPT with the real megatron-core 0.15 on a CPU.

It compares loss and every gradient per variant, then a short AdamW run."""
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import checkpoint_files
import corpus
import mcore_models
import mcore_training
import program
from report import Report

torch.set_num_threads(1)


def is_neutral(name, tensor):
    """Whether a vector has still (almost) the values that it was initialized with."""
    if name.endswith("expert_bias"):  # it moves in steps of one size
        return np.unique(tensor).size < 3
    return np.unique(tensor).size < tensor.size // 2 or np.std(tensor) < 0.02


def random_checkpoint(variant, samples, directory, extra=(), learning_rate=0.05):
    """Makes a checkpoint of our program and returns its weights.
    It comes after a few wild Adam steps, so that no norm weight or bias is neutral any more."""
    program.pretrain(
        samples,
        [
            *mcore_models.COMMON_FLAGS,
            *variant.flags,
            *extra,
            "--init-method-std",
            0.1,
            "--save",
            directory,
            "--save-interval",
            4,
            "--train-iters",
            4,
            "--micro-batch-size",
            1,
            "--global-batch-size",
            1,
            "--optimizer",
            "adam",
            "--lr",
            learning_rate,
            "--lr-decay-style",
            "constant",
            "--clip-grad",
            0,
        ],
    )
    tensors = checkpoint_files.read_model(directory)
    neutral = [
        name for name, tensor in tensors.items() if tensor.ndim == 1 and is_neutral(name, tensor)
    ]
    if neutral:
        raise ValueError(f"still neutral after four steps: {neutral}")
    return tensors


def check_gradients(report, variant, work):
    samples = corpus.make(
        work, vocab_size=mcore_models.VOCAB_SIZE, seq_length=mcore_models.SEQ_LENGTH
    )
    before = random_checkpoint(variant, samples, work / "initial")
    model = mcore_models.build(variant)
    mcore_models.fill(model, before)
    loss, expected = mcore_models.loss_and_gradients(model, samples.rows)
    flags = [*mcore_models.COMMON_FLAGS, *variant.flags, "--finetune"]
    output = program.sgd_output(samples, work / "initial", work / "stepped", flags)
    report.close(f"{variant.name}, loss", program.log_values(output, "lm loss"), [loss])
    for depth, value in enumerate(mcore_models.depth_losses(), 1):
        name = f"mtp_{depth} loss"
        report.close(f"{variant.name}, {name}", program.log_values(output, name), [value])
    after = checkpoint_files.read_weights(work / "stepped")
    report.close_tensors(f"{variant.name}, gradients", program.gradients(before, after), expected)


def check_training(report, variant, work):
    """Runs eight iterations of AdamW with warm-up, cosine decay, weight decay and clipping.
    The log line's values must follow megatron-core's."""
    iterations, warmup, batch = 8, 2, 4
    samples = corpus.make(
        work,
        vocab_size=mcore_models.VOCAB_SIZE,
        seq_length=mcore_models.SEQ_LENGTH,
        num_samples=iterations * batch,
    )
    before = random_checkpoint(variant, samples, work / "initial")
    model = mcore_models.build(variant)
    mcore_models.fill(model, before)
    losses, norms, rates = mcore_training.train(
        model,
        samples.rows,
        iterations=iterations,
        warmup_iterations=warmup,
        global_batch_size=batch,
    )
    output = program.pretrain(
        samples,
        [
            *mcore_models.COMMON_FLAGS,
            *variant.flags,
            "--load",
            work / "initial",
            "--finetune",
            "--train-iters",
            iterations,
            "--micro-batch-size",
            2,
            "--global-batch-size",
            batch,
            "--lr-warmup-iters",
            warmup,
            *mcore_training.FLAGS,
        ],
    )
    report.close(
        f"{variant.name}, losses of {iterations} AdamW iterations",
        program.log_values(output, "lm loss"),
        losses,
    )
    report.close(
        f"{variant.name}, gradient norms",
        program.log_values(output, "grad norm"),
        norms,
        tolerance=5e-4,
    )  # the log line shows three decimals
    report.close(
        f"{variant.name}, learning rates",
        program.log_values(output, "learning rate"),
        rates,
        tolerance=1e-6,
    )


def main():
    report = Report()
    wanted = sys.argv[1:]
    for variant in mcore_models.variants():
        if not wanted or variant.name in wanted:
            with tempfile.TemporaryDirectory() as work, report.guard(variant.name):
                check_gradients(report, variant, Path(work))
    if not wanted:
        for variant in list(mcore_models.variants())[:3:2]:
            with tempfile.TemporaryDirectory() as work, report.guard(f"{variant.name}, training"):
                check_training(report, variant, Path(work))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
