"""What a tiny Hugging Face model for a comparison is, and the spellings that real folders have."""
import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file, save_model
from transformers import AutoModelForCausalLM

SEQ_LENGTH = 40
COMMON = dict(
    hidden_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=112,
    max_position_embeddings=64,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
# Trained as `pretrain hybrid`.
HYBRID_TYPES = {"mamba2", "nemotron_h", "bamba", "granitemoehybrid"}
LLAMA3_SCALING = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)


@dataclass
class Variant:
    """A configuration, and the changes made to the saved directory that real checkpoints show."""

    name: str
    config: object
    shard_size: str = "1GB"
    edits: list = field(default_factory=list)  # functions of the saved directory
    stacked: bool = False  # one tensor for all experts of a layer, as transformers 5 has in memory
    prepare: object = None  # a function of the model before it is saved, if edits quantise it
    wide: object = None  # wide(model): a context in which it computes in float64; see reference()


def spell_as_transformers_4(directory):
    """Writes config.json as transformers 4 writes it.
    rope_theta and rope_scaling are on the top level, and the dtype is torch_dtype."""
    path = Path(directory) / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    config["transformers_version"] = "4.46.0"
    path.write_text(json.dumps(config, indent=2))


def spell_rope_scaling_type(directory):
    """The oldest spelling of a scaled RoPE: {"type": …}."""
    path = Path(directory) / "config.json"
    config = json.loads(path.read_text())
    config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")
    path.write_text(json.dumps(config, indent=2))


def drop_transformer_prefix(directory):
    """Writes GPT-2 as its first checkpoints have it.
    There is no `transformer.` prefix, and the causal-mask buffers stand beside the weights."""
    path = Path(directory) / "model.safetensors"
    tensors = {
        name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()
    }
    for layer in range(COMMON["num_hidden_layers"]):
        tensors[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(1, 1, 64, 64))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        path,
        metadata={"format": "pt"},
    )


def save_with_safetensors(directory):
    """Writes the weights as `safetensors.torch.save_model` does.
    A tied pair is there once, under the name that sorts first: lm_head.weight."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    once = Path(directory) / "once.safetensors"  # the model may be a view of the other file
    save_model(model, str(once), metadata={"format": "pt"})
    once.replace(Path(directory) / "model.safetensors")


def tell_norms_apart(directory):
    """Gives the first norm of OLMo Hybrid's attention the name that it has in memory.
    transformers writes that of the second norm of other layers, and reads both."""
    path = Path(directory) / "model.safetensors"
    tensors = load_file(path)
    for name in list(tensors):
        layer, _, norm = name.rpartition(".feedforward_layer_norm")
        if layer and f"{layer}.self_attn.q_proj.weight" in tensors:
            tensors[f"{layer}.post_attention_layernorm{norm}"] = tensors.pop(name)
    save_file(tensors, path, metadata={"format": "pt"})
