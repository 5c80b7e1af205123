"""Splits whole tensors over the tensor-parallel ranks of megatron-core, and joins them again."""
import numpy as np
from megatron.core.transformer.torch_norm import WrappedTorchNorm

plain_norm = WrappedTorchNorm.__new__


def norm_of_a_sequence_part(cls, config, *args, **kwargs):
    """Makes torch's norm, marked as megatron-core marks its own.
    Its gradients are summed over the ranks that share the sequence."""
    sequence_parallel, config.sequence_parallel = config.sequence_parallel, False
    norm = plain_norm(cls, config, *args, **kwargs)
    config.sequence_parallel = sequence_parallel
    for parameter in norm.parameters():
        parameter.sequence_parallel = sequence_parallel
    return norm


WrappedTorchNorm.__new__ = norm_of_a_sequence_part


def is_gated_projection(name, gated):
    return gated and "linear_fc1." in name and "layer_norm" not in name


def split_dim(whole_shape, local_shape):
    """Returns the one dimension that differs."""
    return next(i for i, (a, b) in enumerate(zip(whole_shape, local_shape)) if a != b)


def split(name, whole, local_shape, gated, rank, ranks):
    """Returns a rank's part of a whole tensor.
    Gate and up are split each on their own; else the one dimension that differs has equal parts."""
    if tuple(whole.shape) == tuple(local_shape):
        return whole
    if is_gated_projection(name, gated):
        return np.concatenate([np.split(half, ranks)[rank] for half in np.split(whole, 2)])
    return np.split(whole, ranks, axis=split_dim(whole.shape, local_shape))[rank]


def join(name, parts, whole_shape, gated):
    """The inverse of split. Replicated tensors must be equal on all ranks."""
    if tuple(parts[0].shape) == tuple(whole_shape):
        if any(not np.array_equal(parts[0], part) for part in parts):
            raise ValueError(f"{name}: replicated tensors differ between the ranks")
        return parts[0]
    if is_gated_projection(name, gated):
        halves = [np.split(part, 2) for part in parts]
        return np.concatenate([np.concatenate([half[i] for half in halves]) for i in range(2)])
    return np.concatenate(parts, axis=split_dim(whole_shape, parts[0].shape))
