"""Variants of the families that normalize the outputs of blocks: OLMo 2 and 3, EXAONE 4."""
import json
from pathlib import Path

from hf_variants import COMMON, LLAMA3_SCALING, Variant, spell_as_transformers_4
from transformers import Exaone4Config, Olmo2Config, Olmo3Config

YARN = dict(
    rope_type="yarn",
    rope_theta=500000.0,
    factor=4.0,
    original_max_position_embeddings=16,
    beta_fast=32.0,
    beta_slow=1.0,
    attention_factor=1.2,
)


def spell_olmo3_as_transformers_4(directory):
    """Writes the rotary parameters of the full layers in place of those by type of layer."""
    path = Path(directory) / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"] = config["rope_parameters"]["full_attention"]
    path.write_text(json.dumps(config))
    spell_as_transformers_4(directory)


def olmo_variants(common):
    yield Variant("olmo2", Olmo2Config(**common, num_key_value_heads=2))
    yield Variant(
        "olmo2 tied, llama3 rope, v4",
        Olmo2Config(**common, tie_word_embeddings=True, rope_parameters=LLAMA3_SCALING),
        edits=[spell_as_transformers_4],
    )
    olmo3 = dict(common, num_hidden_layers=4, sliding_window=7)
    yield Variant("olmo3", Olmo3Config(**olmo3))
    yield Variant(
        "olmo3 gqa, yarn in full layers, v4",
        Olmo3Config(
            **olmo3,
            num_key_value_heads=2,
            rope_parameters=dict(
                full_attention=YARN,
                sliding_attention=dict(rope_type="default", rope_theta=500000.0),
            ),
        ),
        edits=[spell_olmo3_as_transformers_4],
    )
    yield Variant(
        "olmo3 mqa, layer types, two bases",
        Olmo3Config(
            **olmo3,
            num_key_value_heads=1,
            tie_word_embeddings=True,
            layer_types=["full_attention", "sliding_attention"] * 2,
            rope_parameters=dict(
                full_attention=dict(rope_type="default", rope_theta=20000.0),
                sliding_attention=dict(rope_type="default", rope_theta=300.0),
            ),
        ),
    )


def exaone_variants(common):
    exaone4 = dict(common, num_hidden_layers=4, num_key_value_heads=2)
    yield Variant("exaone4", Exaone4Config(**exaone4, sliding_window=7))
    yield Variant(
        "exaone4 layer types, own head size, llama3 rope, v4",
        Exaone4Config(
            **exaone4,
            head_dim=24,
            sliding_window=7,
            sliding_window_pattern="LG",
            layer_types=["sliding_attention", "full_attention"] * 2,
            rope_parameters=LLAMA3_SCALING,
        ),
        edits=[spell_as_transformers_4],
    )
    full = ["full_attention"] * 4
    yield Variant(
        "exaone4 full attention, tied",
        Exaone4Config(
            **exaone4,
            sliding_window=None,
            sliding_window_pattern=None,
            layer_types=full,
            tie_word_embeddings=True,
        ),
    )
    yield Variant(
        "exaone4 full attention without positions",
        Exaone4Config(**dict(exaone4, num_key_value_heads=1), sliding_window=7, layer_types=full),
    )


def variants():
    common = dict(COMMON, vocab_size=131)
    yield from olmo_variants(common)
    yield from exaone_variants(common)
