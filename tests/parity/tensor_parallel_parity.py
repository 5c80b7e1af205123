"""Compares our GPT on two ranks with the real megatron-core on two tensor-parallel ranks.

Both have the same weights. Loss and every gradient are compared."""
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import checkpoint_files
import corpus
import mcore_models
import peer_ranks
import program
from mcore_parity import random_checkpoint
from report import Report

torch.set_num_threads(1)
# megatron-core trains padded vocabulary rows, ours has none: two ranks share this vocabulary
# without padding.
RANKS, VOCAB_SIZE = 2, 132
VARIANTS = [
    "layernorm, learned positions, gelu, tied",
    "openai gelu, untied, own norm epsilon",
    "rmsnorm, rope, swiglu, gqa, no bias, untied",
    "qk layernorm with biases",
    "swiglu with biases",
    "bias of qkv only",
    "sliding window",
]
# Variants in which our two ranks are compared with megatron-core on one rank.
ONE_RANK_ONLY = [
    # megatron-core 0.15 refuses fewer query groups than ranks
    "mqa, own head size, tied last",
    # Its ranks do not add their gradients of the rotated keys, which all heads share.
    "mla, norms of latents, yarn with mscale",
    "mla without a latent of queries, plain rope",
]


def variants():
    return {variant.name: variant for variant in mcore_models.variants()}


def ask_megatron_core(script, cases, work):
    """Returns the answers of megatron-core's ranks, in order of the cases.
    `script` is what each rank runs."""
    (work / "cases.json").write_text(json.dumps(cases))
    peer_ranks.run(script, work, RANKS)
    return [dict(np.load(work / case["answer"])) for case in cases]


def our_gradients(samples, initial, stepped, flags):
    loss = program.sgd_step(samples, initial, stepped, flags, ranks=RANKS)
    return loss, program.gradients(
        checkpoint_files.read_weights(initial), checkpoint_files.read_weights(stepped)
    )


def check(report, samples, work, name, expected, expected_loss, layouts):
    """Ours in each layout against one answer or one for each layout."""
    variant = variants()[name]
    for layout, flags in layouts.items():
        with report.guard(f"{name}, {layout}"):
            folder = work / f"stepped {name} {layout}"
            loss, gradients = our_gradients(
                samples,
                work / name,
                folder,
                [*mcore_models.COMMON_FLAGS, *variant.flags, "--finetune", *flags],
            )
            report.close(f"{name}, {layout}, loss", loss, expected_loss(layout))
            report.close_tensors(f"{name}, {layout}, gradients", gradients, expected(layout))


TENSOR_FLAGS = ["--tensor-model-parallel-size", RANKS]
LAYOUTS = {
    "tp 2": TENSOR_FLAGS,
    "tp 2 with sequence parallel": [*TENSOR_FLAGS, "--sequence-parallel"],
    "tp 2 with overlapped GEMMs": [*TENSOR_FLAGS, "--sequence-parallel", "--tp-comm-overlap"],
    "two replicas": [],
    "two replicas, distributed optimizer": [
        "--use-distributed-optimizer",
        "--overlap-grad-reduce",
        "--overlap-param-gather",
    ],
}


def check_two_ranks(report, samples, work):
    cases = []
    for name in VARIANTS:
        np.savez(work / f"{name}.npz", **random_checkpoint(variants()[name], samples, work / name))
        cases += [
            dict(
                variant=name,
                sequence_parallel=sequence_parallel,
                vocab_size=VOCAB_SIZE,
                weights=f"{name}.npz",
                rows="rows.npy",
                answer=f"{name}-{sequence_parallel}.npz",
            )
            for sequence_parallel in (False, True)
        ]
    answers = {
        (case["variant"], case["sequence_parallel"]): answer
        for case, answer in zip(cases, ask_megatron_core("mcore_tensor_parallel.py", cases, work))
    }
    losses = {key: float(answer.pop("loss")) for key, answer in answers.items()}
    for name in VARIANTS:

        def key(layout, name=name):
            return name, "--sequence-parallel" in LAYOUTS[layout]

        check(
            report,
            samples,
            work,
            name,
            lambda layout: answers[key(layout)],
            lambda layout: losses[key(layout)],
            LAYOUTS,
        )


def check_one_rank(report, samples, work, name):
    """Two ranks against megatron-core on one rank."""
    variant = variants()[name]
    weights = random_checkpoint(variant, samples, work / name)
    mcore_models.VOCAB_SIZE = VOCAB_SIZE
    model = mcore_models.build(variant)
    mcore_models.fill(model, weights)
    loss, expected = mcore_models.loss_and_gradients(model, samples.rows)
    check(report, samples, work, name, lambda _: expected, lambda _: loss, LAYOUTS)


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        samples = corpus.make(work, vocab_size=VOCAB_SIZE, seq_length=mcore_models.SEQ_LENGTH)
        np.save(work / "rows.npy", samples.rows)
        with report.guard("megatron-core on two ranks"):
            check_two_ranks(report, samples, work)
        for name in ONE_RANK_ONLY:
            with report.guard(name):
                check_one_rank(report, samples, work, name)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
