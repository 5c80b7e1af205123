"""Loads checkpoints that the real megatron-core saved, in its formats torch_dist and torch, also in
NeMo 2's folders, and those of DTensors that PyTorch saved as Megatron-LM's fsdp_dtensor.

The weights that we read must be those of the real model bit by bit, and so must its
log-probabilities be ours."""
import json
import os
import pickle
import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import checkpoint_files
import corpus
import mcore_checkpoints
import mcore_optimizer_states
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


def layout(tp=1, pp=1, chunks=1, ep=1, ranks=None):
    """A layout; of more `ranks` than it needs, replicas share the weights."""
    return dict(tp=tp, pp=pp, chunks=chunks, ep=ep, ranks=ranks)


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
    "nemo": {
        LLAMA: [layout(), layout(tp=2, pp=2)],
        GPT2: [layout(), layout(pp=2, chunks=2)],
        DENSE_FIRST: [layout(ep=2)],
        MLA: [layout()],
    },
    "torch": {
        LLAMA: [*DENSE, layout(pp=2, chunks=2)],
        GPT2: [layout(), layout(tp=2, pp=2)],
        SHARED_EXPERTS: [layout(ep=2), layout(tp=2, ep=2)],
        DENSE_FIRST: [layout(ep=2)],
        MLA: [layout(), layout(tp=2)],
        MTP: [layout()],
    },
    "fsdp_dtensor": {
        LLAMA: [layout(), layout(ranks=2)],
        GPT2: [layout(ranks=2)],
        SHARED_EXPERTS: [layout(ranks=2)],
        DENSE_FIRST: [layout(ranks=2)],
        MLA: [layout(ranks=2)],
    },
}


def num_layers(name):
    return 3 if name == DENSE_FIRST else 4


def world_size(of):
    return of.get("ranks") or max(of["tp"] * of["pp"], of["tp"] * of["ep"])


def described(of):
    names = dict(tp="tp", pp="pp", chunks="vpp", ep="ep", ranks="ranks")
    return " ".join(f"{names[key]} {n}" for key, n in of.items() if n and n > 1) or "one rank"


def flags_of(name):
    flags = [*mcore_checkpoints.mcore_models.COMMON_FLAGS]
    flags[flags.index("--num-layers") + 1] = num_layers(name)
    return [*flags, *mcore_checkpoints.variant_of(name).flags]


def saved_args(name, of, **more):
    interleaved = of["chunks"] if of["chunks"] > 1 else None
    return mcore_saved_args.namespace(
        [*flags_of(name), *mcore_optimizer_states.FLAGS],
        **{
            **dict(
                vocab_size=VOCAB_SIZE,
                padded_vocab_size=VOCAB_SIZE,
                seq_length=SEQ_LENGTH,
                train_iters=5,
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
        torch.manual_seed(len(name))
        self.model = mcore_checkpoints.build(case_of(name, layout(), "", ""), 0)
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


def old_order(version, tensor, heads):
    """Rows of queries, keys and values as checkpoint_version 0 or 1 has them: Megatron-LM's
    fix_query_key_value_ordering() turns them into (head, 3, size)."""
    rows = tensor.reshape(heads, 3, -1, *tensor.shape[1:])
    if version == 0:
        rows = rows.swapaxes(0, 1)
    if version == 1:
        rows = rows.swapaxes(1, 2)
    return np.ascontiguousarray(rows).reshape(tensor.shape)


OLD_NAMES = [
    ("decoder.layers", "transformer.layers"),
    ("decoder.final_layernorm", "transformer.final_layernorm"),
    ("self_attention.linear_qkv.layer_norm_", "input_layernorm."),
    ("mlp.linear_fc1.layer_norm_", "post_attention_layernorm."),
    ("self_attention.linear_qkv", "attention.query_key_value"),
    ("self_attention.linear_proj", "attention.dense"),
    ("mlp.linear_fc1", "mlp.dense_h_to_4h"),
    ("mlp.linear_fc2", "mlp.dense_4h_to_h"),
]


def old_state(weights, version, rank, ranks, heads=4):
    """The nested state dict of a rank of Megatron-LM before version 3, with its old names."""
    embedding, transformer = {}, {}
    for name, tensor in weights.items():
        axis = 1 if re.search(r"(linear_proj|linear_fc2)\.weight", name) else 0
        is_whole = "norm" in name or "position" in name or re.search(
            r"(linear_proj|linear_fc2)\.bias", name
        )
        part = tensor if is_whole else np.split(tensor, ranks, axis)[rank]
        if "linear_qkv" in name and "norm" not in name:
            part = old_order(version, part, heads // ranks)
        value = torch.from_numpy(np.ascontiguousarray(part))
        if name.startswith("embedding."):
            _, module, key = name.split(".")
            embedding[module] = {key: value}
            continue
        for new, old in OLD_NAMES:
            name = name.replace(new, old)
        transformer[name.removeprefix("transformer.")] = value
    return {"language_model": {"embedding": embedding, "transformer": transformer}}


def check_old_versions(report, real, rows, work):
    for version in (0, 1, 2):
        for ranks in (1, 2):
            folder = work / f"version {version} of {ranks}"
            for rank in range(ranks):
                file = folder / f"iter_0000003/mp_rank_{rank:02d}/model_optim_rng.pt"
                file.parent.mkdir(parents=True)
                state = {
                    "args": saved_args(GPT2, layout(tp=ranks)),
                    "iteration": 3,
                    "model": old_state(real.weights, version, rank, ranks),
                }
                if version:
                    state["checkpoint_version"] = float(version)
                torch.save(state, file)
            (folder / "latest_checkpointed_iteration.txt").write_text("3")
            title = f"checkpoint_version {version}, {ranks} tensor-parallel ranks"
            check_folder(report, title, folder, real, rows, work)


def check_next_losses(report, case, samples, work):
    """Training goes on with the optimizer's state as megatron-core's does."""
    title = f"{case['optimizer']} in {case['format']}, {case['variant']}, {case['ranks']} ranks"
    title += ", next losses"
    with report.guard(title):
        output = program.pretrain(
            samples,
            [
                *flags_of(case["variant"]),
                *mcore_optimizer_states.FLAGS,
                *["--load", work / case["folder"], "--train-iters", 5],
            ],
        )
        losses = program.log_values(output, "lm loss")
        report.close(title, losses, np.load(work / f"{case['folder']}.npy"))


def check_buckets(report, case, samples, work):
    """Buckets of one layout are not read, and never silently left out."""
    flags = [
        *flags_of(case["variant"]),
        *mcore_optimizer_states.FLAGS,
        *["--load", work / case["folder"], "--train-iters", 5],
    ]
    with report.guard("buckets of an optimizer"):
        try:
            program.pretrain(samples, flags)
            report.result("buckets of an optimizer are refused", False)
        except program.ProgramError as error:
            said = str(error)
            named = "exit 2" in said and "fully-reshardable" in said and "--no-load-optim" in said
            report.result("buckets of an optimizer are refused", named, said.splitlines()[0])
        program.pretrain(samples, [*flags, "--no-load-optim"])
        report.result("buckets of an optimizer, --no-load-optim", True)


BUCKETS = "dp_reshardable"
# (variant, layout, form of the optimizer's state, ranks, format)
OPTIMIZERS = [
    (LLAMA, layout(), "fp32", 1, "torch_dist"),
    (LLAMA, layout(tp=2), "fp32", 2, "torch_dist"),
    (SHARED_EXPERTS, layout(), "fp32", 1, "torch_dist"),
    (LLAMA, layout(), "fully_reshardable", 1, "torch_dist"),
    (SHARED_EXPERTS, layout(), "fully_reshardable", 1, "torch_dist"),
    (LLAMA, layout(), "fully_sharded_model_space", 1, "torch_dist"),
    (LLAMA, layout(), "fully_sharded_model_space", 1, "nemo"),
    (LLAMA, layout(), BUCKETS, 1, "torch_dist"),
]


def check_optimizers(report, work):
    samples = corpus.make(work, vocab_size=VOCAB_SIZE, seq_length=SEQ_LENGTH, num_samples=20)
    np.save(work / "rows.npy", samples.rows)
    cases = []
    for name, of, form, ranks, kind in OPTIMIZERS:
        folder = f"optimizer {len(cases)}"
        cases.append(case_of(name, of, kind, folder, optimizer=form, ranks=ranks))
        args = saved_args(name, of, use_distributed_optimizer=form != "fp32")
        (work / f"{folder}.args").write_bytes(pickle.dumps(args))
    save_all(cases, work)
    for case in cases:
        if case["optimizer"] != BUCKETS:
            check_next_losses(report, case, samples, work)
    check_buckets(report, cases[-1], samples, work)


class Touch:
    """Its pickle would make a file if it were run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch '{self.path}'",)


def refused(report, title, folder, said, arguments=("checkpoint", "inspect")):
    with report.guard(title):
        message = program.run(*arguments, folder, expect=2).stderr
        report.result(title, said in message, message.strip().splitlines()[0][-160:])


def damaged(source, work, title, damage):
    """A copy of a folder after damage(its iteration)."""
    folder = work / f"damaged {title}"
    shutil.copytree(source, folder)
    damage(folder / f"iter_{mcore_checkpoints.ITERATION:07d}")
    return folder


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def with_args(file, **changes):
    """Saves a file of torch.save again with other args or tensors."""
    state = torch.load(file, weights_only=False)
    for key, value in changes.items():
        if key == "tensor":
            state["model"]["decoder.layers.0.unknown.weight"] = value
        elif key == "run":
            state["run"] = value
        else:
            setattr(state["args"], key, value)
    torch.save(state, file)


def check_damage(report, dist, ranks, work):
    """Each damage has one message; `ranks` has two tensor-parallel ranks."""
    piece, first, second = "__0_0.distcp", "mp_rank_00", "mp_rank_01"
    file, proof = "model_optim_rng.pt", work / "was run"
    damages = {
        "metadata.json is missing": (
            dist,
            lambda f: (f / "metadata.json").unlink(),
            "metadata.json",
        ),
        "a file of pieces is missing": (dist, lambda f: (f / piece).unlink(), piece),
        "a file of pieces is cut": (dist, lambda f: cut(f / piece), piece),
        "the index is cut": (dist, lambda f: cut(f / ".metadata"), ".metadata"),
        "common.pt is cut": (dist, lambda f: cut(f / "common.pt"), "common.pt"),
        "other layers in args": (
            dist,
            lambda f: with_args(f / "common.pt", num_layers=3),
            "decoder.layers.3",
        ),
        "a rank is missing": (ranks, lambda f: shutil.rmtree(f / second), second),
        "a rank's file is cut": (ranks, lambda f: cut(f / second / file), second),
        "another tp in args": (
            ranks,
            lambda f: with_args(f / first / file, tensor_model_parallel_size=1),
            first,
        ),
        "an unknown tensor": (
            ranks,
            lambda f: with_args(f / first / file, tensor=torch.zeros(3)),
            "unknown.weight",
        ),
    }
    for title, (source, damage, said) in damages.items():
        refused(report, title, damaged(source, work, title, damage), said)
    folder = damaged(
        ranks, work, "runs", lambda f: with_args(f / first / file, run=Touch(str(proof)))
    )
    with report.guard("a pickle that would run a program"):
        program.run("checkpoint", "inspect", folder)
        report.result("a pickle that would run a program is only read", not proof.exists())


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


def check_states(report, title, folder, weights, work):
    """The optimizer's states, which mcore_checkpoints.py computed from the weights."""
    with report.guard(title):
        program.run(
            *["convert", "--load", folder, "--save", work / f"dcp {folder.name}", "--format", "dcp"]
        )
        found = checkpoint_files.read_dcp(work / f"dcp {folder.name}")
        trained = {k: v for k, v in weights.items() if not k.endswith("expert_bias")}
        expected = {
            **{f"exp_avg.{name}": value * np.float32(0.5) for name, value in trained.items()},
            **{f"exp_avg_sq.{name}": value * value for name, value in trained.items()},
        }
        states = {name: found[name].numpy() for name in found if name.startswith("exp_avg")}
        different = differences(states, expected)
        report.result(
            f"{title}, states",
            not any(different.values()),
            str({k: v[:4] for k, v in different.items() if v} or f"{len(states)} tensors"),
        )


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
            with report.guard("optimizers"):
                check_optimizers(report, work)
            check_old_versions(report, models[GPT2], rows, work)
            found = {(case["format"], case["tp"]): case["folder"] for case in reversed(cases)}
            check_damage(report, work / found["torch_dist", 1], work / found["torch", 2], work)
            for case in cases:
                title = f"{case['format']}, {case['variant']}, {described(layout_of(case))}"
                real = models[case["variant"]]
                check_folder(report, title, work / case["folder"], real, rows, work)
                if case["format"] == "fsdp_dtensor":
                    check_states(report, title, work / case["folder"], real.weights, work)
    return report.finish()


def layout_of(case):
    return {key: case[key] for key in layout()}


if __name__ == "__main__":
    sys.exit(main())
