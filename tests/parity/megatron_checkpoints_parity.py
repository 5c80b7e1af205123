"""Loads checkpoints that the real megatron-core saved, in its formats torch_dist and torch.

The weights that we read must be those of the real model bit by bit, and so must its
log-probabilities be ours."""
import json
import pickle
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import checkpoint_files
import mcore_checkpoints
import mcore_saved_args
import peer_ranks
import program
from report import Report

torch.set_num_threads(1)
VOCAB_SIZE, SEQ_LENGTH = 132, 40
LLAMA = "rmsnorm, rope, swiglu, gqa, no bias, untied"
GPT2 = "layernorm, learned positions, gelu, tied"
SHARED_EXPERTS, DENSE_FIRST = "shared experts", "dense first layer"
MLA, MTP = "mla, norms of latents, yarn with mscale", "multi-token prediction"


def layout(tp=1, pp=1, chunks=1, ep=1):
    return dict(tp=tp, pp=pp, chunks=chunks, ep=ep)


DENSE = [layout(), layout(tp=2), layout(pp=2), layout(tp=2, pp=2)]
# format → variant → layouts
FOLDERS = {
    "torch_dist": {
        LLAMA: DENSE,
        GPT2: [*DENSE, layout(pp=2, chunks=2)],
        SHARED_EXPERTS: [layout(ep=2), layout(tp=2, ep=2)],
        DENSE_FIRST: [layout(ep=2)],
        MLA: [layout(), layout(tp=2)],
        MTP: [layout()],
    },
    "torch": {
        LLAMA: [*DENSE, layout(pp=2, chunks=2)],
        GPT2: [layout(), layout(tp=2, pp=2)],
        SHARED_EXPERTS: [layout(ep=2), layout(tp=2, ep=2)],
        DENSE_FIRST: [layout(ep=2)],
        MLA: [layout(), layout(tp=2)],
        MTP: [layout()],
    },
}


def num_layers(name):
    return 3 if name == DENSE_FIRST else 4


def world_size(of):
    return max(of["tp"] * of["pp"], of["tp"] * of["ep"])


def described(of):
    names = dict(tp="tp", pp="pp", chunks="vpp", ep="ep")
    return " ".join(f"{names[key]} {n}" for key, n in of.items() if n > 1) or "one rank"


def flags_of(name):
    flags = [*mcore_checkpoints.mcore_models.COMMON_FLAGS]
    flags[flags.index("--num-layers") + 1] = num_layers(name)
    return [*flags, *mcore_checkpoints.variant_of(name).flags]


def saved_args(name, of, **more):
    interleaved = of["chunks"] if of["chunks"] > 1 else None
    return mcore_saved_args.namespace(
        flags_of(name),
        **{
            **dict(
                vocab_size=VOCAB_SIZE,
                padded_vocab_size=VOCAB_SIZE,
                seq_length=SEQ_LENGTH,
                micro_batch_size=2,
                global_batch_size=4,
                train_iters=10,
                iteration=mcore_checkpoints.ITERATION,
                consumed_train_samples=12,
                tensor_model_parallel_size=of["tp"],
                pipeline_model_parallel_size=of["pp"],
                expert_model_parallel_size=of["ep"],
                virtual_pipeline_model_parallel_size=interleaved,
                world_size=world_size(of),
            ),
            **more,
        },
    )


def case_of(name, of, kind, folder, **more):
    return {
        **of,
        "folder": folder,
        "format": kind,
        "variant": name,
        "num_layers": num_layers(name),
        "vocab_size": VOCAB_SIZE,
        "weights": f"{name}.npz",
        "args": f"{folder}.args",
        **more,
    }


class RealModel:
    """A model on one rank with random weights, none of which is neutral."""

    def __init__(self, name, work):
        self.model = mcore_checkpoints.build(case_of(name, layout(), "", ""), 0)
        torch.manual_seed(len(name))
        self.weights = {}
        with torch.no_grad():
            for key, tensors in mcore_checkpoints.named_tensors(self.model).items():
                for _, tensor in tensors:
                    tensor.add_(torch.randn_like(tensor) * 0.05)
                parts = [(expert, tensor.numpy()) for expert, tensor in tensors]
                self.weights[key] = mcore_checkpoints.mcore_moe.stacked(parts)
        np.savez(work / f"{name}.npz", **self.weights)

    def log_probabilities(self, rows):
        with torch.no_grad():
            self.model.eval()
            return -mcore_checkpoints.mcore_models.token_losses(self.model, rows).numpy()


def differences(found, expected):
    return {
        "missing": sorted(expected.keys() - found.keys()),
        "unexpected": sorted(found.keys() - expected.keys()),
        "different": sorted(
            key
            for key in expected.keys() & found.keys()
            if found[key].shape != expected[key].shape
            or found[key].tobytes() != np.ascontiguousarray(expected[key]).tobytes()
        ),
    }


def check_folder(report, title, folder, real, rows, work):
    """Reads the checkpoint in each way that a user has."""
    with report.guard(title):
        for command in ("verify", "inspect"):
            program.run("checkpoint", command, folder)
        ours = program.convert(folder, work / f"ours {folder.name}", "megatron")
        different = differences(checkpoint_files.read_model(ours), real.weights)
        report.result(
            f"{title}, weights",
            not any(different.values()),
            str({k: v[:4] for k, v in different.items() if v} or f"{len(real.weights)} tensors"),
        )
        answers = [answer["logprobs"] for answer in program.score(folder, rows)]
        report.close(f"{title}, log-probabilities", answers, real.log_probabilities(rows))


def save_all(cases, work):
    """Lets megatron-core save what the cases say; those with as many ranks are one job."""
    for size in sorted({world_size(case) for case in cases}):
        mine = [case for case in cases if world_size(case) == size]
        (work / "cases.json").write_text(json.dumps(mine))
        peer_ranks.run("mcore_checkpoints.py", work, size)


def main():
    report = Report()
    rows = np.random.default_rng(1).integers(0, VOCAB_SIZE, (3, SEQ_LENGTH))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        with report.guard("megatron-core's checkpoints"):
            cases = []
            for kind, variants in FOLDERS.items():
                for name, layouts in variants.items():
                    for of in layouts:
                        case = case_of(name, of, kind, f"{len(cases)}")
                        cases.append(case)
                        (work / case["args"]).write_bytes(pickle.dumps(saved_args(name, of)))
            names = dict.fromkeys(case["variant"] for case in cases)
            models = {name: RealModel(name, work) for name in names}
            save_all(cases, work)
            for case in cases:
                title = f"{case['format']}, {case['variant']}, {described(layout_of(case))}"
                check_folder(
                    report, title, work / case["folder"], models[case["variant"]], rows, work
                )
    return report.finish()


def layout_of(case):
    return {key: case[key] for key in layout()}


if __name__ == "__main__":
    sys.exit(main())
