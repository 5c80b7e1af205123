"""Reads our checkpoints with the real safetensors package, and those of PyTorch.

A checkpoint is a manifest of slices beside safetensors files (docs/formats/checkpoint.md)."""
import json
from pathlib import Path

import numpy as np
from safetensors import safe_open


def latest_folder(root):
    """The committed folder that latest_checkpointed_iteration.txt names."""
    root = Path(root)
    if (root / "manifest.json").exists():
        return root
    latest = (root / "latest_checkpointed_iteration.txt").read_text().strip()
    return root / ("release" if latest == "release" else f"iter_{int(latest):07d}")


def read_manifest(root):
    return json.loads((latest_folder(root) / "manifest.json").read_text())


def assemble(folder, tensor):
    """One global tensor from its slices; every element must be covered once."""
    whole, covered = None, np.zeros(tensor["shape"], dtype=np.int8)
    for piece in tensor["pieces"]:
        with safe_open(folder / piece["file"], framework="np") as file:
            content = file.get_tensor(piece["key"])
        if whole is None:
            whole = np.empty(tensor["shape"], dtype=content.dtype)
        where = tuple(
            slice(start, start + length) for start, length in zip(piece["offset"], piece["shape"])
        )
        whole[where] = content.reshape(piece["shape"])
        covered[where] += 1
    if not (covered == 1).all():
        raise ValueError("the pieces of a tensor do not tile it")
    return whole


def read_tensors(root, kind):
    """All tensors of a kind ("weight" or "optimizer") by name."""
    folder = latest_folder(root)
    tensors = read_manifest(root)["tensors"]
    return {
        name: assemble(folder, tensor) for name, tensor in tensors.items() if tensor["kind"] == kind
    }


def read_weights(root):
    return read_tensors(root, "weight")


def read_model(root):
    """The weights, and what layers keep for themselves, such as the biases of experts."""
    return {**read_weights(root), **read_tensors(root, "state")}


def read_dcp(folder):
    """All tensors of a folder, read by PyTorch in one process."""
    import torch
    import torch.distributed.checkpoint as dcp

    metadata = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty(tensor.size, dtype=tensor.properties.dtype)
        for name, tensor in metadata.items()
        if hasattr(tensor, "size")
    }
    dcp.load(tensors, checkpoint_id=folder, no_dist=True)
    return tensors
