"""Variants of the Gemma families."""
import json
from pathlib import Path

from hf_variants import COMMON, Variant, spell_as_transformers_4
from transformers import Gemma2Config, Gemma3TextConfig, GemmaConfig, VaultGemmaConfig


def edit(directory, change):
    path = Path(directory) / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config, indent=2))


def name_activation_twice(directory):
    """Writes the activation as the first folders of Gemma have it, whose null is the tanh form."""
    edit(directory, lambda config: config.update(hidden_act="gelu", hidden_activation=None))


def spell_layers_as_transformers_4(directory):
    """Writes the rotary parameters and the windows of Gemma 3 as transformers 4 does."""

    def change(config):
        rope = config.pop("rope_parameters")
        full = rope["full_attention"]
        config["rope_theta"] = full.pop("rope_theta")
        config["rope_scaling"] = None if full["rope_type"] == "default" else full
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        config["sliding_window_pattern"] = config.pop("layer_types").index("full_attention") + 1
        config["torch_dtype"] = config.pop("dtype")

    edit(directory, change)


def variants():
    common = dict(COMMON, vocab_size=131, head_dim=24)
    yield Variant("gemma", GemmaConfig(**common, num_key_value_heads=1))
    yield Variant(
        "gemma untied, erf gelu, v4",
        GemmaConfig(
            **dict(common, head_dim=20),
            num_key_value_heads=2,
            hidden_act="gelu",
            tie_word_embeddings=False,
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "gemma with two names of the activation",
        GemmaConfig(**common, num_key_value_heads=4),
        edits=[spell_as_transformers_4, name_activation_twice],
    )
    windowed = dict(
        common,
        num_hidden_layers=4,
        num_key_value_heads=2,
        query_pre_attn_scalar=90,
        sliding_window=7,
    )
    caps = dict(attn_logit_softcapping=2.0, final_logit_softcapping=3.0)
    mixed = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    linear = dict(rope_type="linear", rope_theta=5000.0, factor=8.0)
    for name, config_class in {"gemma2": Gemma2Config, "vaultgemma": VaultGemmaConfig}.items():
        yield Variant(name, config_class(**windowed, **caps))
        yield Variant(
            f"{name} without caps, layer types, linear rope, untied, v4",
            config_class(
                **dict(windowed, num_key_value_heads=1),
                attn_logit_softcapping=None,
                final_logit_softcapping=None,
                layer_types=mixed,
                rope_parameters=linear,
                tie_word_embeddings=False,
            ),
            edits=[spell_as_transformers_4],
        )
    by_layer = dict(
        full_attention=linear, sliding_attention=dict(rope_type="default", rope_theta=100.0)
    )
    yield Variant(
        "gemma3_text",
        Gemma3TextConfig(
            **windowed, layer_types=mixed, rope_parameters=by_layer, final_logit_softcapping=3.0
        ),
    )
    yield Variant(
        "gemma3_text v4",
        Gemma3TextConfig(**windowed, sliding_window_pattern=3, rope_parameters=by_layer),
        edits=[spell_layers_as_transformers_4],
    )
    yield Variant("gemma3_text, windows in all layers", Gemma3TextConfig(**windowed))
    yield Variant(
        "gemma3_text, full attention, untied",
        Gemma3TextConfig(
            **dict(windowed, num_key_value_heads=1),
            layer_types=["full_attention"] * 4,
            tie_word_embeddings=False,
        ),
    )
