"""Variants of GPT-NeoX, Nemotron, StableLM and Phi, which have LayerNorm and partial rotation."""
import json
from pathlib import Path

from hf_variants import COMMON, LLAMA3_SCALING, Variant, spell_as_transformers_4
from transformers import GPTNeoXConfig, NemotronConfig, PhiConfig, StableLmConfig


def spell_as_pythia(directory):
    """Writes config.json as GPT-NeoX's checkpoints have it: rotary_pct and rotary_emb_base."""
    path = Path(directory) / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rotary_emb_base"] = rope.pop("rope_theta")
    config["rotary_pct"] = rope.pop("partial_rotary_factor")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    del config["attention_bias"]
    path.write_text(json.dumps(config, indent=2))


def variants():
    common = dict(COMMON, vocab_size=131)
    yield Variant("gpt_neox", GPTNeoXConfig(**common))
    yield Variant(
        "gpt_neox one block after the other, half rotated, first spelling",
        GPTNeoXConfig(
            **common,
            use_parallel_residual=False,
            rotary_pct=0.5,
            rotary_emb_base=700,
            hidden_act="gelu_fast",
        ),
        edits=[spell_as_pythia],
    )
    yield Variant(
        "gpt_neox tied, linear rope",
        GPTNeoXConfig(
            **common,
            tie_word_embeddings=True,
            layer_norm_eps=1e-3,
            rope_parameters=dict(
                rope_type="linear", rope_theta=10000.0, factor=4.0, partial_rotary_factor=1.0
            ),
        ),
    )
    yield Variant("nemotron", NemotronConfig(**common, num_key_value_heads=2))
    yield Variant(
        "nemotron mqa tied own head size, biases, llama3 rope v4",
        NemotronConfig(
            **common,
            num_key_value_heads=1,
            head_dim=24,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
            partial_rotary_factor=0.25,
            norm_eps=1e-3,
            rope_parameters=dict(LLAMA3_SCALING),
        ),
        edits=[spell_as_transformers_4],
    )
    stablelm = dict(common, num_key_value_heads=2)
    yield Variant("stablelm", StableLmConfig(**stablelm))
    yield Variant(
        "stablelm parallel blocks, QKV biases, tied v4",
        StableLmConfig(
            **stablelm,
            use_parallel_residual=True,
            use_qkv_bias=True,
            tie_word_embeddings=True,
            partial_rotary_factor=0.5,
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant("phi", PhiConfig(**common))
    yield Variant(
        "phi mqa tied own head size v4",
        PhiConfig(
            **common,
            num_key_value_heads=1,
            head_dim=24,
            tie_word_embeddings=True,
            partial_rotary_factor=0.25,
            layer_norm_eps=1e-3,
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "phi gqa, norms of heads", PhiConfig(**common, num_key_value_heads=2, qk_layernorm=True)
    )
