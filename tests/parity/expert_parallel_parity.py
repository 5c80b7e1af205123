"""Compares our models with experts on two ranks with the real megatron-core on two ranks.

Both divide the experts over ep, or tp over etp, or tp over ep. Loss, auxiliary losses, every
gradient and the updated expert biases are compared."""
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import mcore_models
import mcore_moe_models
from mcore_moe_parity import (
    MICRO_BATCH_SIZE,
    compare,
    make_corpus,
    our_step,
    random_checkpoint,
    their_step,
)
from report import Report
from tensor_parallel_parity import ask_megatron_core

torch.set_num_threads(1)
# Two ranks share this vocabulary without padding.
RANKS, VOCAB_SIZE, NUM_SAMPLES = 2, 132, 8
TENSOR_FLAGS = ["--tensor-model-parallel-size", RANKS, "--sequence-parallel"]
EXPERT_FLAGS = ["--expert-model-parallel-size", RANKS]
# Sizes of megatron-core, and our flags beside --moe-token-dispatcher-type.
LAYOUTS = {
    "ep 2": (dict(tp=1, ep=2, etp=1), EXPERT_FLAGS),
    "tp 2, etp 2": (dict(tp=2, ep=1, etp=2), TENSOR_FLAGS),
    "tp 2, ep 2": (
        dict(tp=2, ep=2, etp=1),
        [*TENSOR_FLAGS, *EXPERT_FLAGS, "--expert-tensor-parallel-size", 1],
    ),
}
DISPATCHERS = ["alltoall", "allgather"]
# megatron-core allows biases with etp 1 alone, and with sequence parallelism it adds the biases of
# different experts. It gives each rank of tp a capacity of its own.
WITHOUT_TENSOR_PARALLELISM = ["gelu with biases, tied", "capacity 1"]
VARIANTS = [
    "sigmoid, groups, expert bias, seq_aux_loss",
    "shared experts with gate",
    "dense first layer",
    "two losses",
    "aux_loss and z_loss",
    *WITHOUT_TENSOR_PARALLELISM,
]
# megatron-core 0.15 does not add the gradients of experts that both ranks of tp hold (etp 1, ep 1),
# and refuses to train with experts on tp without sequence parallelism: ours against one rank.
ONE_RANK_LAYOUTS = {
    "tp 2, etp 1": [*TENSOR_FLAGS, "--expert-tensor-parallel-size", 1],
    "tp 2 without sequence parallel": TENSOR_FLAGS[:2],
    "ep 2, flex": [*EXPERT_FLAGS, "--moe-token-dispatcher-type", "flex"],
}
ONE_RANK_VARIANTS = ["shared experts with gate", "aux_loss and z_loss"]


def cases_of(name):
    for layout, (sizes, flags) in LAYOUTS.items():
        if name in WITHOUT_TENSOR_PARALLELISM and sizes["tp"] > 1:
            continue
        for dispatcher in DISPATCHERS:
            yield dict(
                variant=name,
                layout=layout,
                dispatcher=dispatcher,
                vocab_size=VOCAB_SIZE,
                micro_batch_size=MICRO_BATCH_SIZE,
                weights=f"{name}.npz",
                rows="rows.npy",
                answer=f"{name}-{layout}-{dispatcher}.npz",
                **sizes,
            )


def read_answer(answer, case):
    """Returns what compare() takes.
    With sequence parallelism megatron-core logs the z-loss of the tokens of the first rank alone.
    """
    prefix = "loss "
    losses = {
        key[len(prefix) :]: float(answer.pop(key)) for key in list(answer) if key.startswith(prefix)
    }
    if case["tp"] > 1:
        losses.pop("z_loss", None)
    return float(answer.pop("loss")), losses, answer


def check_against_two_ranks(report, samples, work, names):
    cases = [case for name in names for case in cases_of(name)]
    for case, answer in zip(cases, ask_megatron_core("mcore_expert_parallel.py", cases, work)):
        name = case["variant"]
        title = f"{name}, {case['layout']}, {case['dispatcher']}"
        with report.guard(title):
            theirs = read_answer(answer, case)
            flags = [*LAYOUTS[case["layout"]][1], "--moe-token-dispatcher-type", case["dispatcher"]]
            ours = our_step(
                samples,
                mcore_moe_models.variant_of(name),
                work / name,
                work / title,
                flags,
                ranks=RANKS,
            )
            if "z_loss" not in theirs[1]:
                ours[1].pop("z_loss", None)
            compare(report, title, ours, theirs)


def check_against_one_rank(report, samples, work, name):
    variant = mcore_moe_models.variant_of(name)
    mcore_models.VOCAB_SIZE = VOCAB_SIZE
    theirs = their_step(variant, dict(np.load(work / f"{name}.npz")), samples.rows)
    for layout, flags in ONE_RANK_LAYOUTS.items():
        title = f"{name}, {layout}"
        with report.guard(title):
            ours = our_step(samples, variant, work / name, work / title, flags, ranks=RANKS)
            compare(report, title, ours, theirs)


def main():
    report = Report()
    names = sys.argv[1:] or VARIANTS
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        samples = make_corpus(work, VOCAB_SIZE, NUM_SAMPLES)
        np.save(work / "rows.npy", samples.rows)
        for name in names:
            weights = random_checkpoint(mcore_moe_models.variant_of(name), samples, work / name)
            np.savez(work / f"{name}.npz", **weights)
        with report.guard("megatron-core on two ranks"):
            check_against_two_ranks(report, samples, work, names)
        for name in set(names) & set(ONE_RANK_VARIANTS):
            with report.guard(f"{name} on one rank"):
                check_against_one_rank(report, samples, work, name)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
