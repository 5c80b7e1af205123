"""Runs one stage rank of the real megatron-core.

It gives loss and gradients of variants of mcore_models under its 1F1B and interleaved schedules.

    peer_ranks.run("mcore_pipeline.py", DIR, N)

DIR/cases.json lists {"variant", "chunks", "num_layers", "num_microbatches", "vocab_size",
"weights", "rows", "answer"}; weights are whole tensors by Transformer-Engine name (.npz), one chunk
means 1F1B. Rank 0 writes each answer: the gradients of all stages, and "loss".
"""
import os
import re
from types import SimpleNamespace

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
import mcore_cpu

WORLD_SIZE = int(os.environ["WORLD_SIZE"])
parallel_state = mcore_cpu.init(pp=WORLD_SIZE)

import numpy as np
import torch
import torch.distributed as dist

import mcore_models
from megatron.core.distributed.finalize_model_grads import _allreduce_word_embedding_grads
from megatron.core.pipeline_parallel import get_forward_backward_func

torch.set_num_threads(1)
RANK = int(os.environ["RANK"])
WORD_EMBEDDINGS, OUTPUT = "embedding.word_embeddings.weight", "output_layer.weight"


def enter_pipeline(chunks):
    """Stages of this rank from here on."""
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        pipeline_model_parallel_size=WORLD_SIZE,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
    )


def build_chunks(variant, case):
    chunks = case["chunks"]
    config = dict(
        variant.config,
        num_layers=case["num_layers"],
        pipeline_model_parallel_size=WORLD_SIZE,
        pipeline_dtype=torch.float32,
    )
    if chunks > 1:  # without overlap it needs three ranks
        config.update(
            virtual_pipeline_model_parallel_size=chunks, overlap_p2p_comm=True, batch_p2p_comm=False
        )
    mcore_models.VOCAB_SIZE = case["vocab_size"]
    models = []
    for chunk in range(chunks):
        stage = dict(
            pre_process=RANK == 0 and chunk == 0,
            post_process=RANK == WORLD_SIZE - 1 and chunk == chunks - 1,
            vp_stage=chunk if chunks > 1 else None,
        )
        model = mcore_models.build(
            mcore_models.Variant(
                variant.name, variant.flags, config, {**variant.model, **stage}, variant.attributes
            )
        )
        model.ddp_config = SimpleNamespace(use_megatron_fsdp=False)
        models.append(model)
    return models


def global_parameters(model):
    """The parameters of a stage by their Transformer-Engine names in the whole model."""
    parameters = {}
    for name, parameter in model.named_parameters():
        name = re.sub(
            r"^decoder\.layers\.(\d+)\.",
            lambda m: f"decoder.layers.{model.decoder.layers[int(m[1])].layer_number - 1}.",
            name,
        )
        is_copy = name == OUTPUT and model.share_embeddings_and_output_weights
        parameters[WORD_EMBEDDINGS if is_copy else mcore_models.te_name(name)] = parameter
    return parameters


def run_schedule(models, rows, num_microbatches):
    """Returns the mean loss, on the last rank, of microbatches of equal size.
    Gradients are left in the models."""
    microbatches = np.split(rows, num_microbatches)

    def forward(iterator, model):
        return mcore_models.token_losses(model, next(iterator)), lambda losses: (
            losses.mean(),
            losses.detach().mean(),
        )

    losses = get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=[iter(microbatches) for _ in models],
        model=models,
        num_microbatches=num_microbatches,
        seq_length=rows.shape[1] - 1,
        micro_batch_size=len(microbatches[0]),
    )
    return torch.stack(losses).mean().item() if losses else None


def joined(parts):
    """What all ranks hold together; a tensor that several hold must be the same on each."""
    whole = {}
    for part in parts:
        for name, tensor in part.items():
            if name in whole and not np.array_equal(whole[name], tensor):
                raise ValueError(f"{name} differs between the stages")
            whole[name] = tensor
    return whole


def answer(case, directory):
    variant = next(v for v in mcore_models.variants() if v.name == case["variant"])
    enter_pipeline(case["chunks"])
    models = build_chunks(variant, case)
    whole = dict(np.load(directory / case["weights"]))
    with torch.no_grad():
        for model in models:
            for name, parameter in global_parameters(model).items():
                parameter.copy_(torch.from_numpy(whole[name]))
    loss = run_schedule(models, np.load(directory / case["rows"]), case["num_microbatches"])
    _allreduce_word_embedding_grads(models, models[0].config)
    mine = {
        name: parameter.grad.numpy()
        for model in models
        for name, parameter in global_parameters(model).items()
    }
    if loss is not None:
        mine["loss"] = np.float64(loss)
    parts = [None] * WORLD_SIZE
    dist.all_gather_object(parts, mine)
    if RANK == 0:
        gradients = joined(parts)
        if gradients.keys() != whole.keys() | {"loss"}:
            raise ValueError(f"other parameters: {sorted(gradients.keys() ^ whole.keys())}")
        np.savez(directory / case["answer"], **gradients)


mcore_cpu.answer_cases(answer)
