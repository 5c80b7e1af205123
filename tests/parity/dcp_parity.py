"""Writes checkpoints for Megatron-LM and for PyTorch, and loads them with the real packages.

torch.distributed.checkpoint must read the same bytes; megatron-core must compute the same losses
and train on as our program does; and what we read back must be what we wrote."""
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import checkpoint_files
import corpus
import mcore_checkpoints
import mcore_loads
import mcore_optimizer_states
import peer_ranks
import program
from checkpoint_files import read_dcp
from report import Report

torch.set_num_threads(1)
VOCAB_SIZE, SEQ_LENGTH, ITERATIONS = 132, 40, 5
LLAMA = "rmsnorm, rope, swiglu, gqa, no bias, untied"
GPT2 = "layernorm, learned positions, gelu, tied"
SHARED_EXPERTS, DENSE_FIRST = "shared experts", "dense first layer"
MLA, MTP = "mla, norms of latents, yarn with mscale", "multi-token prediction"
# variant → ranks and tp of the real megatron-core, and whether it trains on
JOBS = {
    LLAMA: [(1, 1, True), (2, 1, True), (2, 2, True)],
    GPT2: [(1, 1, True), (2, 2, False)],
    SHARED_EXPERTS: [(1, 1, True)],
    DENSE_FIRST: [(1, 1, False)],
    MTP: [(1, 1, False)],
    MLA: [],  # its local layers have other names than those with Transformer Engine
}


def num_layers(name):
    return 3 if name == DENSE_FIRST else 4


def convert(load, save, kind, *extra):
    program.run("convert", "--load", load, "--save", save, "--format", kind, *extra)
    return Path(save)


def pretrain(name, samples, folder):
    """Trains, and returns the losses."""
    flags = [*mcore_checkpoints.mcore_models.COMMON_FLAGS]
    flags[flags.index("--num-layers") + 1] = num_layers(name)
    output = program.pretrain(
        samples,
        [
            *flags,
            *mcore_checkpoints.variant_of(name).flags,
            *mcore_optimizer_states.FLAGS,
            *["--train-iters", ITERATIONS, "--save", folder, "--save-interval", 3],
        ],
    )
    return program.log_values(output, "lm loss")


def different(found, expected):
    """The names of tensors that are missing or have other bytes."""
    return sorted(
        name
        for name, tensor in expected.items()
        if name not in found or not torch.equal(found[name], tensor)
    )


def check_files(report, name, run, work):
    """What PyTorch reads, and what comes back."""
    expected = {
        key: torch.from_numpy(tensor.copy())
        for kind in ("weight", "state", "optimizer")
        for key, tensor in checkpoint_files.read_tensors(run, kind).items()
    }
    found = read_dcp(convert(run, work / f"{name} plain", "dcp"))
    wrong = different(found, expected) + sorted(found.keys() - expected.keys())
    report.result(f"{name}, torch.distributed.checkpoint", not wrong, str(wrong or len(found)))
    halves = read_dcp(convert(run, work / f"{name} bf16", "dcp", "--dtype", "bf16"))
    wrong = different(
        halves,
        {
            key: tensor.bfloat16()
            for key, tensor in expected.items()
            if key in checkpoint_files.read_weights(run)
        },
    )
    report.result(f"{name}, as bf16", not wrong, str(wrong or len(halves)))

    folder = convert(run, work / f"{name} torch_dist", "torch_dist")
    back = read_dcp(convert(folder, work / f"{name} back", "dcp"))
    weights = {f"main_param.{key}": expected[key] for key in checkpoint_files.read_weights(run)}
    wrong = different(back, {**weights, **expected})
    report.result(f"{name}, torch_dist and back", not wrong, str(wrong or len(back)))


def check_losses(report, case, run, losses, rows, work):
    title = f"{case['variant']}, {case['ranks']} ranks, tp {case['tp']}"
    with report.guard(title):
        answers = np.load(work / f"{case['answer']}.npz")
        ours = [answer["logprobs"] for answer in program.score(run, rows)]
        report.close(f"{title}, losses", -np.array(ours), answers["losses"])
        allowed = ("._extra_state",)  # of modules that its local layers do not have
        unasked = [
            key
            for key in answers["unasked"]
            if not key.endswith(allowed) and (case["next"] or not key.startswith("optimizer."))
        ]
        report.result(f"{title}, nothing else", not unasked, str(unasked[:4]))
        if case["next"]:
            report.close(f"{title}, next losses", losses[3:], answers["next"])


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        samples = corpus.make(work, vocab_size=VOCAB_SIZE, seq_length=SEQ_LENGTH, num_samples=20)
        np.save(work / "rows.npy", samples.rows)
        cases, losses = [], {}
        for name, jobs in JOBS.items():
            with report.guard(name):
                losses[name] = pretrain(name, samples, work / name)
                run = work / name / "iter_0000003"
                check_files(report, name, run, work)
                for ranks, tp, trains in jobs:
                    cases.append(
                        dict(
                            folder=f"{name} torch_dist/iter_0000003",
                            variant=name,
                            num_layers=num_layers(name),
                            vocab_size=VOCAB_SIZE,
                            tp=tp,
                            pp=1,
                            chunks=1,
                            ep=1,
                            ranks=ranks,
                            next=trains,
                            answer=f"{len(cases)}",
                        )
                    )
        for ranks in sorted({case["ranks"] for case in cases}):
            mine = [case for case in cases if case["ranks"] == ranks]
            with report.guard(f"megatron-core on {ranks} ranks"):
                (work / "cases.json").write_text(json.dumps(mine))
                peer_ranks.run("mcore_loads.py", work, ranks)
                for case in mine:
                    name = case["variant"]
                    check_losses(
                        report,
                        case,
                        work / name / "iter_0000003",
                        losses[name],
                        samples.rows[: mcore_loads.EVALUATED],
                        work,
                    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
