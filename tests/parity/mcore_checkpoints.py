"""Runs one rank of the real megatron-core that saves a checkpoint in one of its formats.

    peer_ranks.run("mcore_checkpoints.py", DIR, N)

DIR/cases.json lists {"folder", "format", "variant", "num_layers", "vocab_size", "tp", "pp",
"chunks", "ep", "weights", "args"}; weights are whole tensors with the names of our checkpoints
(.npz), args the pickle of a namespace. Folders are made as Megatron-LM's save_checkpoint() does;
those of the format "nemo" are NeMo 2's (mcore_nemo.py).
With "optimizer" (see mcore_optimizer_states.py), it trains before and after.
"""
import multiprocessing
import os
import pickle
import re

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
import mcore_cpu

parallel_state = mcore_cpu.init()

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.dist_checkpointing.strategies import filesystem_async
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import mcore_models
import mcore_moe
import mcore_moe_models
import mcore_nemo
import mcore_shards

torch.set_num_threads(1)
RANK = int(os.environ["RANK"])
ITERATION = 3
WORD_EMBEDDINGS = "embedding.word_embeddings.weight"


def variant_of(name):
    both = [*mcore_models.variants(), *mcore_moe_models.variants()]
    return next(variant for variant in both if variant.name == name)


def enter_layout(case):
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=case["tp"],
        pipeline_model_parallel_size=case["pp"],
        virtual_pipeline_model_parallel_size=case["chunks"] if case["chunks"] > 1 else None,
        expert_model_parallel_size=case["ep"],
    )


def build(case, chunk):
    """The model of this rank, or one of its chunks, wrapped if it has experts."""
    variant = variant_of(case["variant"])
    mcore_models.VOCAB_SIZE = case["vocab_size"]
    config = dict(
        num_layers=case["num_layers"],
        tensor_model_parallel_size=case["tp"],
        pipeline_model_parallel_size=case["pp"],
        pipeline_dtype=torch.float32,
        virtual_pipeline_model_parallel_size=case["chunks"] if case["chunks"] > 1 else None,
    )
    if "num_moe_experts" in variant.config:
        settings = dict(expert_model_parallel_size=case["ep"], sequence_parallel=case["tp"] > 1)
        return mcore_moe.build(variant, **config, **settings)
    stage, last = parallel_state.get_pipeline_model_parallel_rank(), case["pp"] - 1
    place = dict(
        pre_process=stage == 0 and chunk == 0,
        post_process=stage == last and chunk == case["chunks"] - 1,
        vp_stage=chunk if case["chunks"] > 1 else None,
    )
    return mcore_models.build(
        mcore_models.Variant(
            variant.name,
            variant.flags,
            {**variant.config, **config},
            {**variant.model, **place},
            variant.attributes,
        )
    )


def named_tensors(model):
    """Name in our checkpoints → [(expert or None, tensor)], with the layers of the whole model."""
    plain = getattr(model, "module", model)
    found = (
        mcore_moe.named_tensors(model)
        if plain is not model
        else {name: [(None, t)] for name, t in mcore_models.te_parameters(model).items()}
    )

    def whole_name(name):
        if name == "output_layer.weight" and plain.share_embeddings_and_output_weights:
            return WORD_EMBEDDINGS  # the copy of the last stage
        return re.sub(
            r"^decoder\.layers\.(\d+)\.",
            lambda m: f"decoder.layers.{plain.decoder.layers[int(m[1])].layer_number - 1}.",
            name,
        )

    return {whole_name(name): tensors for name, tensors in found.items()}


def fill(model, whole, gated):
    for name, tensors in named_tensors(model).items():
        is_expert = ".mlp.experts." in name
        rank, ranks = (
            (
                parallel_state.get_expert_tensor_parallel_rank(),
                parallel_state.get_expert_tensor_parallel_world_size(),
            )
            if is_expert
            else (
                parallel_state.get_tensor_model_parallel_rank(),
                parallel_state.get_tensor_model_parallel_world_size(),
            )
        )
        with torch.no_grad():
            for expert, tensor in tensors:
                value = mcore_moe.part_of(whole[name], expert)
                part = mcore_shards.split(name, value, tensor.shape, gated, rank, ranks)
                tensor.copy_(torch.from_numpy(part))


def rng_state(case):
    """What Megatron-LM saves of random numbers."""
    tp, pp = (
        parallel_state.get_tensor_model_parallel_rank(),
        parallel_state.get_pipeline_model_parallel_rank(),
    )
    state = {"random_rng_state": None, "np_rng_state": np.random.get_state(), "torch_rng_state": 1}
    return ShardedObject(
        "rng_state",
        [state],
        (case["pp"], case["tp"]),
        (pp, tp),
        replica_id=parallel_state.get_data_parallel_rank(with_context_parallel=True),
    )


def common_state(args):
    return {
        "args": args,
        "checkpoint_version": 3.0,
        "iteration": ITERATION,
        "num_floating_point_operations_so_far": 12345,
    }


def model_key(models, chunk):
    return "model" if len(models) == 1 else f"model{chunk}"


def save_torch_dist(case, folder, models, state, metadata=None, optimizer=None):
    if case["format"] == "nemo":
        state = mcore_nemo.trainer_state(ITERATION, state["args"].consumed_train_samples)
        mcore_nemo.save(folder.parent, models, state, metadata, optimizer)
        return
    for chunk, model in enumerate(models):
        plain = getattr(model, "module", model)
        state[model_key(models, chunk)] = plain.sharded_state_dict(metadata=metadata)
    if optimizer is not None:
        model_state = {k: v for k, v in state.items() if k.startswith("model")}
        state["optimizer"] = optimizer.sharded_state_dict(model_state, metadata=metadata)
    state["rng_state"] = rng_state(case)
    folder.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    dist_checkpointing.save(state, str(folder))


def save_ranks(case, folder, models, state):
    """Saves one file for each model-parallel rank, as get_checkpoint_name() of Megatron-LM names
    it."""
    is_writer = (
        parallel_state.get_expert_data_parallel_rank()
        if case["ep"] > 1
        else parallel_state.get_data_parallel_rank()
    ) == 0
    name = f"mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}"
    if case["pp"] > 1:
        name += f"_{parallel_state.get_pipeline_model_parallel_rank():03d}"
    if case["ep"] > 1:
        name += f"_{parallel_state.get_expert_model_parallel_rank():03d}"
    for chunk, model in enumerate(models):
        plain = getattr(model, "module", model)
        state[model_key(models, chunk)] = plain.state_dict_for_save_checkpoint()
    if is_writer:
        (folder / name).mkdir(parents=True, exist_ok=True)
        torch.save(state, folder / name / "model_optim_rng.pt")


def dtensors(model, gated):
    """Name → DTensor over all ranks, as Megatron-LM's fsdp_dtensor has them: each expert, and each
    half of a gated layer, is a tensor of its own."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parts = {}
    for name, tensors in named_tensors(model).items():
        for expert, tensor in tensors:
            key = name if expert is None else f"{name}{expert}"
            if gated and name.endswith(("linear_fc1.weight", "linear_fc1.bias")):
                halves = tensor.detach().chunk(2)
                parts.update({f"{key}_w": halves[0], f"{key}_v": halves[1]})
            else:
                parts[key] = tensor.detach()
    return {
        key: distribute_tensor(part.contiguous(), mesh, [Shard(0)]) for key, part in parts.items()
    }


def save_fsdp_dtensor(folder, model, state, gated):
    """Saves a state dict with PyTorch alone, as Megatron-LM does with Megatron FSDP. The states of
    the optimizer are functions of the weights."""
    parts = dtensors(model, gated)
    state["model"] = {f"module.{key}": part for key, part in parts.items()}
    state["opt_param_scheduler"] = {"num_steps": 12, "max_lr": 1e-3}
    state["optimizer"] = {
        "state": {
            f"module.module.{key}": {"exp_avg": part * 0.5, "exp_avg_sq": part * part}
            for key, part in parts.items()
            if not key.endswith("expert_bias")
        },
        "param_to_group_meta": {
            f"module.module.{key}": {"lr": 1e-3, "step": ITERATION} for key in parts
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))


def answer(case, directory):
    enter_layout(case)
    models = [build(case, chunk) for chunk in range(case["chunks"])]
    whole = dict(np.load(directory / case["weights"]))
    gated = variant_of(case["variant"]).config.get("gated_linear_unit", False)
    for model in models:
        fill(model, whole, gated)
    args = pickle.loads((directory / case["args"]).read_bytes())
    root = directory / case["folder"]
    folder = root / f"iter_{ITERATION:07d}"
    if case.get("optimizer"):
        import mcore_optimizer_states

        mcore_optimizer_states.answer(case, directory, models[0], args, folder)
    elif case["format"] in ("torch_dist", "nemo"):
        save_torch_dist(case, folder, models, common_state(args))
    elif case["format"] == "fsdp_dtensor":
        save_fsdp_dtensor(folder, models[0], common_state(args), gated)
    else:
        save_ranks(case, folder, models, common_state(args))
    if RANK == 0 and case["format"] != "nemo":
        (root / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))


if __name__ == "__main__":
    # megatron-core would spawn it, and the new interpreter would run this file and join as a rank.
    filesystem_async._results_queue = multiprocessing.get_context("fork").Manager().Queue()
    mcore_cpu.answer_cases(answer)
