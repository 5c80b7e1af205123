"""Makes the real megatron-core GPT with experts on a CPU and runs a training step of it.

A step is megatron-core's own schedule, data-parallel wrapper and finalize_model_grads. Tensors have
the names of our checkpoints, in which the experts of a layer are stacked."""
import re

import numpy as np
import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import layers as tensor_parallel_layers
from megatron.core.transformer.moe import moe_utils, token_dispatcher
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.transformer.transformer_config import TransformerConfig

import mcore_models

LOSS_NAMES = [
    "load_balancing_loss",
    "seq_load_balancing_loss",
    "global_load_balancing_loss",
    "z_loss",
]
EXPERT = re.compile(r"\.local_experts\.(\d+)\.")
plain_reduce = tensor_parallel_layers.reduce_from_tensor_model_parallel_region


def reduce_to_own_memory(*arguments, **settings):
    """Makes a copy, to which an expert may add its bias in place.
    On one rank the plain function returns its argument, where newer PyTorch forbids that."""
    return plain_reduce(*arguments, **settings).clone()


def as_on_host(tensor, as_numpy=False, record_stream=False):
    """Makes the list that all_to_all_single() takes, also of a tensor on the CPU."""
    return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor


tensor_parallel_layers.reduce_from_tensor_model_parallel_region = reduce_to_own_memory
token_dispatcher.maybe_move_tensor_to_cpu = as_on_host


def build(variant, **settings):
    """Makes the model, wrapped for data parallelism, that `settings` change."""
    config = TransformerConfig(**{**mcore_models.COMMON_CONFIG, **variant.config, **settings})
    spec = get_gpt_decoder_block_spec(
        config, use_transformer_engine=False, normalization=config.normalization
    )
    for layer in spec.layer_specs:
        if getattr(layer.submodules.mlp.submodules, "shared_experts", None):
            layer.submodules.mlp.submodules.shared_experts.params = {"gate": variant.gate}
    model = GPTModel(
        config,
        spec,
        mcore_models.VOCAB_SIZE,
        mcore_models.MAX_POSITIONS,
        **{
            "share_embeddings_and_output_weights": True,
            "position_embedding_type": "learned_absolute",
            **variant.model,
        },
    )
    options = DistributedDataParallelConfig(overlap_grad_reduce=False)
    return DistributedDataParallel(config, options, model)


def moe_layers(model):
    return [module for module in model.modules() if isinstance(module, MoELayer)]


def our_name(model, name):
    """The name in our checkpoints of a parameter of the unwrapped model."""
    layer = re.match(r"decoder\.layers\.(\d+)\.", name)
    has_experts = layer and isinstance(model.decoder.layers[int(layer[1])].mlp, MoELayer)
    if has_experts and ".pre_mlp_layernorm." in name:
        return name
    return EXPERT.sub(".", mcore_models.te_name(name))


def named_tensors(wrapped):
    """Our name → [(global index of the expert or None, tensor)], parameters and expert biases."""
    model, named = wrapped.module, {}
    biases = [(name, tensor) for name, tensor in model.named_buffers() if "expert_bias" in name]
    for name, tensor in [*model.named_parameters(), *biases]:
        local = EXPERT.search(name)
        expert = None
        if local:
            layer = model.decoder.layers[int(name.split(".")[2])].mlp
            expert = layer.local_expert_indices[int(local[1])]
        named.setdefault(our_name(model, name), []).append((expert, tensor))
    return named


def part_of(whole, expert):
    return whole if expert is None else whole[expert]


def fill(wrapped, whole, split=lambda name, tensor, shape: tensor):
    """Copies whole tensors into the model; split() returns the part of this rank."""
    named = named_tensors(wrapped)
    if named.keys() != whole.keys():
        raise ValueError(f"other parameters: {sorted(named.keys() ^ whole.keys())}")
    with torch.no_grad():
        for name, tensors in named.items():
            for expert, tensor in tensors:
                value = split(name, part_of(whole[name], expert), tensor.shape)
                if tuple(value.shape) != tuple(tensor.shape):
                    raise ValueError(f"{name}: {value.shape}, megatron-core {tuple(tensor.shape)}")
                tensor.copy_(torch.from_numpy(value))


def own_gradients(wrapped):
    """Our name → [(expert or None, gradient)]; an expert bias stands for itself."""
    return {
        name: [
            (expert, (tensor.main_grad if tensor.requires_grad else tensor).numpy())
            for expert, tensor in tensors
        ]
        for name, tensors in named_tensors(wrapped).items()
    }


def stacked(parts):
    """One tensor from [(expert or None, tensor)]."""
    if parts[0][0] is None:
        return parts[0][1]
    return np.stack([tensor for _, tensor in sorted(parts, key=lambda part: part[0])])


def aux_losses(config, num_microbatches):
    """The means over microbatches and layers that megatron-core logs."""
    total = {}
    moe_utils.track_moe_metrics(
        1 / num_microbatches,
        iteration=1,
        writer=None,
        total_loss_dict=total,
        num_layers=config.num_layers,
        moe_layer_freq=config.moe_layer_freq,
    )
    return {name: float(total[name]) for name in LOSS_NAMES if name in total}


def own_microbatches(rows, micro_batch_size):
    """This rank's microbatches: Megatron deals them out to the data-parallel ranks in turn."""
    microbatches = np.split(rows, len(rows) // micro_batch_size)
    return microbatches[
        parallel_state.get_data_parallel_rank() :: parallel_state.get_data_parallel_world_size()
    ]


def step(wrapped, rows, micro_batch_size):
    """Runs forward and backward over all microbatches and finishes the gradients.
    Returns the mean loss of this rank and the auxiliary losses."""
    moe_utils.get_moe_layer_wise_logging_tracker().clear()
    moe_utils.MoEAuxLossAutoScaler.main_loss_backward_scale = None
    microbatches = own_microbatches(rows, micro_batch_size)

    def forward(iterator, model):
        return mcore_models.token_losses(model, next(iterator)), lambda losses: (
            losses.mean(),
            losses.detach().mean(),
        )

    wrapped.zero_grad_buffer()
    losses = get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=iter(microbatches),
        model=wrapped,
        num_microbatches=len(microbatches),
        seq_length=rows.shape[1] - 1,
        micro_batch_size=micro_batch_size,
    )
    finalize_model_grads([wrapped])
    return torch.stack(losses).mean().item(), aux_losses(wrapped.config, len(microbatches))
