"""Loads checkpoints that the real DeepSpeed saved under ZeRO 1 to 3.

The weights and Adam's moments that we read must be, bit by bit, those that DeepSpeed's own
zero_to_fp32 puts together. Folders of Megatron-DeepSpeed with several model-parallel ranks are one
job of DeepSpeed for each of these ranks, renamed; they must equal the same weights in a folder of
Megatron-LM (checked by megatron_checkpoints_parity.py)."""
import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"
import torch
from deepspeed.utils import zero_to_fp32
from safetensors.torch import save_file

import checkpoint_files
import peer_ranks
import program
from report import Report

torch.set_num_threads(1)
STEPS = 3
LLAMA = dict(
    vocab_size=101,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=32,
)
EMBEDDING = "model.embed_tokens.weight"
HF_CASES = [  # title, stage, bf16, ranks, tied, frozen
    ("ZeRO-1, fp32, tied", 1, False, 2, True, []),
    ("ZeRO-2, bf16, a frozen embedding", 2, True, 3, False, [EMBEDDING]),
    ("ZeRO-3, bf16, a frozen embedding", 3, True, 3, False, [EMBEDDING]),
    ("ZeRO-3, bf16", 3, True, 2, False, []),
]
MEGATRON_CASES = [  # title, stage, tp, pp
    ("Megatron-DeepSpeed, ZeRO-1", 1, 1, 1),
    ("Megatron-DeepSpeed, ZeRO-2, tp 2", 2, 2, 1),
    ("Megatron-DeepSpeed, ZeRO-3, tp 2", 3, 2, 1),
    ("Megatron-DeepSpeed, ZeRO-1, tp 2, pp 2", 1, 2, 2),
]
HIDDEN, VOCAB, POSITIONS = 32, 128, 40
SKIP_ONE = ["--train-iters", STEPS + 1, "--iterations-to-skip", STEPS + 1, "--mock-data"]
TRAIN = ["--micro-batch-size", 1, "--lr", 1e-3, "--seq-length", 16]


def layer_shapes(tp):
    norm = {"weight": [HIDDEN], "bias": [HIDDEN]}

    def column(rows):
        return {"weight": [rows // tp, HIDDEN], "bias": [rows // tp]}

    def row(columns):
        return {"weight": [HIDDEN, columns // tp], "bias": [HIDDEN]}

    modules = {
        "input_layernorm": norm,
        "self_attention.query_key_value": column(3 * HIDDEN),
        "self_attention.dense": row(HIDDEN),
        "post_attention_layernorm": norm,
        "mlp.dense_h_to_4h": column(4 * HIDDEN),
        "mlp.dense_4h_to_h": row(4 * HIDDEN),
    }
    return {f"{name}.{leaf}": shape for name, of in modules.items() for leaf, shape in of.items()}


def embedding_shapes(tp):
    return {
        "word_embeddings.weight": [VOCAB // tp, HIDDEN],
        "position_embeddings.weight": [POSITIONS, HIDDEN],
    }


def prefixed(prefix, shapes):
    return {prefix + name: shape for name, shape in shapes.items()}


def whole_shapes(tp):
    shapes = prefixed("language_model.embedding.", embedding_shapes(tp))
    for layer in range(2):
        shapes |= prefixed(f"language_model.encoder.layers.{layer}.", layer_shapes(tp))
    return shapes | prefixed(
        "language_model.encoder.final_layernorm.", {"weight": [HIDDEN], "bias": [HIDDEN]}
    )


# Modules 0 and 2 of Megatron-DeepSpeed's pipelines are functions.
def stage_shapes(tp, stage):
    if stage == 0:
        shapes = prefixed("tied_modules.embed.", embedding_shapes(tp))
        return shapes | prefixed("3.", layer_shapes(tp))
    shapes = {"6.weight": [HIDDEN], "6.bias": [HIDDEN]} | prefixed("4.", layer_shapes(tp))
    tied = "word_embeddings.weight"
    return shapes | prefixed("tied_modules.embed.", {tied: embedding_shapes(tp)[tied]})


def without_pipeline(name):
    for old, new in {
        "tied_modules.embed.": "language_model.embedding.",
        "3.": "language_model.encoder.layers.0.",
        "4.": "language_model.encoder.layers.1.",
        "6.": "language_model.encoder.final_layernorm.",
    }.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def saved_args(tp, pp):
    return dict(
        num_layers=2,
        hidden_size=HIDDEN,
        ffn_hidden_size=4 * HIDDEN,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=POSITIONS,
        padded_vocab_size=VOCAB,
        seq_length=16,
        normalization="layernorm",
        position_embedding_type="learned_absolute",
        untie_embeddings_and_output_weights=False,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        iteration=STEPS,
        consumed_train_samples=2 * STEPS,
    )


def folder_of(root):
    return root / f"global_step{STEPS}"


def merged(root, state):
    """What zero_to_fp32 makes of a folder; of a state of Adam if it stands in place of weights."""
    if state:
        other = root.with_name(f"{root.name} {state}")
        shutil.copytree(root, other)
        for path in folder_of(other).glob("*_optim_states.pt"):
            shard = torch.load(path, weights_only=False)
            inner = shard["optimizer_state_dict"]
            key = "fp32_flat_groups"
            base = inner.get("optimizer_state_dict")
            if key not in inner:
                key, base = "single_partition_of_fp32_groups", inner["base_optimizer_state"]
            inner[key] = [
                base["state"][i][state][: group.numel()] for i, group in enumerate(inner[key])
            ]
            torch.save(shard, path)
        root = other
    found = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(root)
    return {name: tensor.contiguous().float().clone() for name, tensor in found.items()}


def hugging_face_folder(work, tensors, config):
    work.mkdir()
    (work / "config.json").write_text(config)
    if json.loads(config)["tie_word_embeddings"]:
        tensors.pop("lm_head.weight", None)
    save_file(tensors, work / "model.safetensors")
    return work


def megatron_folder(work, ranks, args):
    for tp, tensors in enumerate(ranks):
        folder = work / f"iter_{STEPS:07d}" / f"mp_rank_{tp:02d}"
        folder.mkdir(parents=True)
        state = dict(args=args, checkpoint_version=3.0, iteration=STEPS, model=tensors)
        torch.save(state, folder / "model_optim_rng.pt")
    (work / "latest_checkpointed_iteration.txt").write_text(str(STEPS))
    return work


def join_ranks(root, jobs, pp):
    """Makes one folder of those of all model-parallel ranks. A pipeline's modules have files of
    their own."""
    target = folder_of(root)
    target.mkdir(parents=True)
    (root / "latest").write_text(target.name)
    for rank, job in enumerate(jobs):
        for path in folder_of(job).glob("*.pt"):
            name = path.name.replace("mp_rank_00", f"mp_rank_{rank:02d}")
            shutil.copy(path, target / name)
        if pp == 1:
            continue
        path = target / f"mp_rank_{rank:02d}_model_states.pt"
        states = torch.load(path, weights_only=False)
        tp = rank % (len(jobs) // pp)
        modules = {}
        for name, tensor in states["module"].items():
            module, key = re.fullmatch(r"(tied_modules\.embed|\d+)\.(.*)", name).groups()
            if not module.isdigit():
                if rank >= len(jobs) // pp:
                    continue
                module = "1"
            modules.setdefault(int(module), {})[key] = tensor.clone()
        for module, tensors in modules.items():
            torch.save(tensors, target / f"layer_{module:02d}-model_{tp:02d}-model_states.pt")
        states["module"] = None
        torch.save(states, path)
    return root


def make_jobs(work):
    """Lets DeepSpeed train and save all jobs, several by the same processes."""
    jobs = {2: [], 3: []}
    toys = []
    for index, (_, stage, bf16, ranks, tied, frozen) in enumerate(HF_CASES):
        config = {**LLAMA, "tie_word_embeddings": tied}
        jobs[ranks].append(
            dict(folder=f"hf {index}", stage=stage, bf16=bf16, config=config, frozen=frozen)
        )
    for index, (_, stage, tp, pp) in enumerate(MEGATRON_CASES):
        for rank in range(tp * pp):
            shapes = whole_shapes(tp) if pp == 1 else stage_shapes(tp, rank // tp)
            toys.append(
                dict(
                    folder=f"megatron {index} {rank}",
                    stage=stage,
                    bf16=True,
                    shapes=shapes,
                    args=saved_args(tp, pp),
                )
            )
    for ranks, of in [*jobs.items(), (2, toys)]:
        (work / "cases.json").write_text(json.dumps(of))
        peer_ranks.run("deepspeed_ranks.py", work, ranks, timeout=600)


def same(report, title, ours, theirs, frozen=()):
    different = sorted(
        name
        for name in (theirs.keys() | ours.keys()) - set(frozen)
        if name not in ours or name not in theirs or ours[name].tobytes() != theirs[name].tobytes()
    )
    report.result(title, not different, str(different[:4] or f"{len(ours)} tensors"))


def weights(folder, save):
    """The weights of a checkpoint in float32, which has all values of bfloat16."""
    command = ["convert", "--load", folder, "--save", save, "--format", "megatron"]
    program.run(*command, "--dtype", "fp32")
    return checkpoint_files.read_weights(save)


def check(report, title, folder, work, expected, ranks=2, frozen=()):
    """`expected` gives, for a state, a folder whose weights it is. Frozen weights have no state: a
    run that trains them begins with zeros."""
    with report.guard(title):
        program.run("checkpoint", "inspect", folder)
        ours, theirs = weights(folder, work / "ours"), weights(expected(""), work / "theirs")
        same(report, f"{title}, weights", ours, theirs)
        saved = work / "resumed"
        output = program.run(
            *["pretrain", "gpt", "--load", folder, "--save", saved, *TRAIN, *SKIP_ONE],
            *["--global-batch-size", ranks],
            *["--tokenizer-type", "NullTokenizer", "--vocab-size", LLAMA["vocab_size"]],
        ).stdout
        report.result(f"{title}, resumes", f"skipping iteration {STEPS + 1}" in output)
        states = checkpoint_files.read_tensors(saved, "optimizer")
        for state in ("exp_avg", "exp_avg_sq"):
            mine = {
                name.removeprefix(f"{state}."): tensor
                for name, tensor in states.items()
                if name.startswith(f"{state}.")
            }
            theirs = weights(expected(state), work / f"theirs {state}")
            same(report, f"{title}, {state}", mine, theirs, frozen)


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        with report.guard("DeepSpeed"):
            make_jobs(work)
            for index, (title, _, _, ranks, _, frozen) in enumerate(HF_CASES):
                root, own = work / f"hf {index}", work / f"own {index}"
                own.mkdir()
                config = (root / "config.json").read_text()

                def expected(state, root=root, own=own, config=config):
                    return hugging_face_folder(own / f"hf {state}", merged(root, state), config)

                names = ["embedding.word_embeddings.weight"] if frozen else []
                check(report, title, root, own, expected, ranks, names)
            for index, (title, _, tp, pp) in enumerate(MEGATRON_CASES):
                jobs = [work / f"megatron {index} {rank}" for rank in range(tp * pp)]
                own = work / f"joined {index}"

                def expected(state, jobs=jobs, own=own, tp=tp):
                    ranks = [{} for _ in range(tp)]
                    for rank, job in enumerate(jobs):
                        for name, tensor in merged(job, state).items():
                            ranks[rank % tp].setdefault(without_pipeline(name), tensor)
                    args = argparse.Namespace(**{**saved_args(tp, 1), "normalization": "LayerNorm"})
                    return megatron_folder(own / f"megatron {state}", ranks, args)

                root = join_ranks(own / "deepspeed", jobs, pp)
                check(report, title, root, own, expected)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
