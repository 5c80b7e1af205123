"""Compares our GPT in a pipeline of two ranks with the real megatron-core.

megatron-core runs its 1F1B and interleaved schedules on the same weights and microbatches. Loss and
every gradient are compared."""
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import checkpoint_files
import corpus
import mcore_models
import program
from mcore_parity import random_checkpoint
from report import Report
from tensor_parallel_parity import ask_megatron_core, variants

torch.set_num_threads(1)
RANKS, VOCAB_SIZE, NUM_LAYERS, NUM_MICROBATCHES, MICROBATCH_SIZE = (
    2,
    128,
    4,
    4,
    2,
)  # a vocabulary without padding, which megatron-core would train
VARIANTS = [
    "layernorm, learned positions, gelu, tied",
    "rmsnorm, rope, swiglu, gqa, no bias, untied",
]
STAGES = ["--pipeline-model-parallel-size", RANKS]
SCHEDULES = {
    "1f1b": (1, STAGES),
    "interleaved": (2, [*STAGES, "--num-virtual-stages-per-pipeline-rank", 2]),
}


def model_flags(name):
    return [*mcore_models.COMMON_FLAGS, *variants()[name].flags, "--num-layers", NUM_LAYERS]


def check(report, samples, work, name, schedule, answer):
    """Ours against one answer of megatron-core."""
    loss = float(answer.pop("loss"))
    folder = work / f"stepped {name} {schedule}"
    our_loss = program.sgd_step(
        samples,
        work / name,
        folder,
        [*model_flags(name), "--finetune", *SCHEDULES[schedule][1]],
        ranks=RANKS,
    )
    report.close(f"{name}, {schedule}, loss", our_loss, loss)
    gradients = program.gradients(
        checkpoint_files.read_weights(work / name), checkpoint_files.read_weights(folder)
    )
    report.close_tensors(f"{name}, {schedule}, gradients", gradients, answer)


def check_pipelines(report, samples, work):
    cases = []
    for name in VARIANTS:
        np.savez(
            work / f"{name}.npz",
            **random_checkpoint(
                variants()[name], samples, work / name, ["--num-layers", NUM_LAYERS]
            ),
        )
        cases += [
            dict(
                variant=name,
                chunks=chunks,
                num_layers=NUM_LAYERS,
                num_microbatches=NUM_MICROBATCHES,
                vocab_size=VOCAB_SIZE,
                weights=f"{name}.npz",
                rows="rows.npy",
                answer=f"{name}-{schedule}.npz",
                schedule=schedule,
            )
            for schedule, (chunks, _) in SCHEDULES.items()
        ]
    for case, answer in zip(cases, ask_megatron_core("mcore_pipeline.py", cases, work)):
        with report.guard(f"{case['variant']}, {case['schedule']}"):
            check(report, samples, work, case["variant"], case["schedule"], answer)


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        samples = corpus.make(
            work,
            vocab_size=VOCAB_SIZE,
            seq_length=mcore_models.SEQ_LENGTH,
            num_samples=NUM_MICROBATCHES * MICROBATCH_SIZE,
        )
        np.save(work / "rows.npy", samples.rows)
        with report.guard("megatron-core's pipelines"):
            check_pipelines(report, samples, work)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
