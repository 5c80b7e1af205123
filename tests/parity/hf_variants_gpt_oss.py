"""Variants of GPT-OSS: sinks, windows in every second layer, and experts with biases."""
import json
from pathlib import Path

import torch
from hf_variants import COMMON, Variant, spell_as_transformers_4
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig
from transformers.integrations.mxfp4 import FP4_VALUES, convert_moe_packed_tensors

YARN = dict(
    rope_type="yarn",
    rope_theta=150000.0,
    factor=4.0,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=False,
    original_max_position_embeddings=16,
)


def is_packed(name):
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


def packed(weight):
    """The nearest MXFP4 of [experts, columns, rows]: blocks [experts, rows, groups, 16], scales.
    It is exact for weights that are in MXFP4."""
    groups = weight.detach().mT.contiguous().unflatten(-1, (-1, 32))
    exponents = groups.abs().amax(-1).log2().floor() - 2
    nearest = (groups / exponents.exp2()[..., None])[..., None] - torch.tensor(FP4_VALUES)
    bits = nearest.abs().argmin(-1).to(torch.uint8)
    return bits[..., ::2] | bits[..., 1::2] << 4, (exponents + 127).to(torch.uint8)


def round_to_mxfp4(model):
    for name, weight in model.named_parameters():
        if is_packed(name):
            weight.data.copy_(convert_moe_packed_tensors(*packed(weight)))


def pack_mxfp4(directory):
    """Stores the experts in MXFP4, as the published folders do."""
    path = Path(directory) / "model.safetensors"
    tensors = load_file(path)
    for name in list(filter(is_packed, tensors)):
        blocks, scales = packed(tensors.pop(name))
        tensors.update({f"{name}_blocks": blocks, f"{name}_scales": scales})
    save_file(tensors, path, metadata={"format": "pt"})
    path = Path(directory) / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"])
    path.write_text(json.dumps(config, indent=2))


def variants():
    common = dict(
        COMMON,
        vocab_size=131,
        num_hidden_layers=4,
        intermediate_size=40,
        num_key_value_heads=2,
        head_dim=24,
        num_local_experts=6,
        num_experts_per_tok=3,
        sliding_window=7,
        router_aux_loss_coef=0.0,
    )
    yield Variant("gpt_oss", GptOssConfig(**common, rope_parameters=YARN))
    yield Variant(
        "gpt_oss mqa tied sharded v4",
        GptOssConfig(
            **dict(common, num_key_value_heads=1), tie_word_embeddings=True, rope_parameters=YARN
        ),
        shard_size="60KB",
        edits=[spell_as_transformers_4],
    )
    yield Variant("gpt_oss default rotary scaling", GptOssConfig(**common))
    yield Variant(
        "gpt_oss not scaled, windows by list, two experts",
        GptOssConfig(
            **dict(common, num_experts_per_tok=2),
            rope_parameters=dict(rope_type="default", rope_theta=1000.0),
            layer_types=["full_attention"] + ["sliding_attention"] * 3,
        ),
    )
    yield Variant(
        "gpt_oss mxfp4",
        GptOssConfig(**dict(common, intermediate_size=96), rope_parameters=YARN),
        edits=[pack_mxfp4],
        prepare=round_to_mxfp4,
    )
