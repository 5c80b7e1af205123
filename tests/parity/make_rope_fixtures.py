"""Writes tests/ops/fixtures/rope_frequencies.json from the real transformers and megatron-core.

Run with the parity environment's Python: `python tests/parity/make_rope_fixtures.py`.
Each case holds the rotary settings, the inverse frequencies (float32, printed exactly) and the
factor multiplied to cos and sin.
"""
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import mcore_cpu

mcore_cpu.init()
import torch
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.models.common.embeddings.yarn_rotary_pos_embedding import YarnRotaryEmbedding
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

OUTPUT = Path(__file__).resolve().parents[1] / "ops/fixtures/rope_frequencies.json"

TRANSFORMERS_CASES = [
    (128, {"rope_type": "default", "rope_theta": 10000.0}),
    (64, {"rope_type": "default", "rope_theta": 500000.0}),
    (48, {"rope_type": "default", "rope_theta": 1000000.0}),
    (64, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    (128, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}),
    (
        128,
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        64,
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        32,
        {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 2.0,
            "high_freq_factor": 6.0,
            "original_max_position_embeddings": 64,
        },
    ),
    (
        128,
        {
            "rope_type": "yarn",
            "rope_theta": 1000000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
        },
    ),
    (
        64,
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 40.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 4096,
        },
    ),
    (
        64,
        {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    ),
    (
        64,
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 16.0,
            "attention_factor": 0.9,
            "original_max_position_embeddings": 2048,
        },
    ),
    # A model of 256 positions goes on with 1024.
    (
        32,
        {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    ),
    (
        32,
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 256,
        },
    ),
    # The range of channels to blend begins before the first, ends behind the last, is empty.
    (
        64,
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 64,
        },
    ),
    (
        8,
        {
            "rope_type": "yarn",
            "rope_theta": 100.0,
            "factor": 4.0,
            "original_max_position_embeddings": 1000000,
        },
    ),
    (
        64,
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "beta_fast": 4.0,
            "beta_slow": 4.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    ),
]

MEGATRON_YARN_CASES = [
    dict(
        kv_channels=64,
        rotary_base=10000.0,
        scaling_factor=40.0,
        original_max_position_embeddings=4096,
        mscale=1.0,
        mscale_all_dim=1.0,
    ),
    dict(
        kv_channels=64,
        rotary_base=10000.0,
        scaling_factor=40.0,
        original_max_position_embeddings=4096,
        mscale=1.0,
        mscale_all_dim=0.0,
    ),
    dict(
        kv_channels=128,
        rotary_base=1000000.0,
        scaling_factor=4.0,
        original_max_position_embeddings=32768,
        mscale=0.707,
        mscale_all_dim=1.0,
    ),
    dict(
        kv_channels=64,
        rotary_base=150000.0,
        scaling_factor=32.0,
        original_max_position_embeddings=4096,
        beta_fast=32.0,
        beta_slow=1.0,
        correction_range_round_to_int=False,
    ),
    dict(
        kv_channels=32,
        rotary_base=10000.0,
        scaling_factor=8.0,
        original_max_position_embeddings=256,
        beta_fast=16.0,
        beta_slow=2.0,
    ),
]

MEGATRON_ROPE_CASES = [
    dict(kv_channels=64, rotary_percent=0.5),
    dict(kv_channels=64, rotary_percent=0.25, rotary_interleaved=True),
    dict(kv_channels=64, rotary_percent=1.0, seq_len_interpolation_factor=4.0),
    dict(
        kv_channels=64,
        rotary_percent=1.0,
        rotary_base=500000.0,
        rope_scaling=True,
        rope_scaling_factor=8.0,
    ),
]


def transformers_case(head_dim, parameters):
    config = LlamaConfig(
        hidden_size=head_dim * 4,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=131072,
        rope_parameters=dict(parameters),
    )
    if parameters["rope_type"] == "default":
        frequencies, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        frequencies, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
    return {
        "head_dim": head_dim,
        "rope_parameters": parameters,
        "inv_freq": frequencies.tolist(),
        "attention_factor": factor,
    }


def yarn_frequencies(embedding):
    """The class keeps no inverse frequencies: the angles of position 1 are they."""
    angles, factor = embedding.forward(2)
    return angles[1, 0, 0, : embedding.dim // 2], factor


def megatron_yarn_case(settings):
    frequencies, factor = yarn_frequencies(
        YarnRotaryEmbedding(use_cpu_initialization=True, **settings)
    )
    return {"settings": settings, "inv_freq": frequencies.tolist(), "concentration_factor": factor}


def megatron_rope_case(settings):
    embedding = RotaryEmbedding(use_cpu_initialization=True, **{"rotary_percent": 1.0, **settings})
    angles = embedding.forward(6)[:, 0, 0, :]
    return {
        "settings": settings,
        "inv_freq": embedding.inv_freq.tolist(),
        "angles_of_position_5": angles[5].tolist(),
    }


def main():
    torch.manual_seed(0)
    groups = {
        "transformers": [transformers_case(*case) for case in TRANSFORMERS_CASES],
        "megatron_yarn": [megatron_yarn_case(case) for case in MEGATRON_YARN_CASES],
        "megatron_rope": [megatron_rope_case(case) for case in MEGATRON_ROPE_CASES],
    }
    body = ",\n".join(
        f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]"
        for name, cases in groups.items()
    )
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text('{"source": "transformers 5.17 and megatron-core 0.15.0",\n' + body + "}\n")
    print(f"wrote {os.path.relpath(OUTPUT)}")


if __name__ == "__main__":
    main()
