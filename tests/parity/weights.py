"""Random weights without a neutral value: norm weights near one (or near zero where gamma is zero-centred), biases near zero, none at either."""
import numpy as np


def perturbed(shapes, seed, zero_centered_gamma=False):
    """A float32 tensor for every name in `shapes`."""
    generator = np.random.default_rng(seed)
    tensors = {}
    for name in sorted(shapes):
        noise = generator.standard_normal(shapes[name]).astype(np.float32)
        if name.endswith("weight") and len(shapes[name]) == 1:
            tensors[name] = (0 if zero_centered_gamma else 1) + np.float32(0.3) * noise
        else:
            tensors[name] = np.float32(0.2 if len(shapes[name]) == 1 else 0.12) * noise
    return {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
