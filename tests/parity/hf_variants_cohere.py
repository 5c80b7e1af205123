"""Variants of Cohere's models: parallel blocks of one norm without bias."""
import json
from pathlib import Path

from hf_variants import COMMON, Variant, spell_as_transformers_4
from transformers import Cohere2Config, CohereConfig


def spell_window_pattern(directory):
    """Writes config.json as Command R7B has it: a pattern in place of a list of layers."""
    path = Path(directory) / "config.json"
    config = json.loads(path.read_text())
    types = config.pop("layer_types")
    config["sliding_window_pattern"] = types.index("full_attention") + 1
    path.write_text(json.dumps(config, indent=2))


def variants():
    common = dict(COMMON, vocab_size=131)
    yield Variant("cohere", CohereConfig(**common))
    yield Variant(
        "cohere gqa, norms of heads, untied v4",
        CohereConfig(
            **common,
            num_key_value_heads=2,
            use_qk_norm=True,
            logit_scale=0.7,
            layer_norm_eps=1e-3,
            tie_word_embeddings=False,
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "cohere mqa, norms of heads, own head size",
        CohereConfig(**common, num_key_value_heads=1, use_qk_norm=True, head_dim=24),
    )
    cohere2 = dict(common, num_hidden_layers=4, num_key_value_heads=2, sliding_window=7)
    yield Variant("cohere2", Cohere2Config(**cohere2))
    yield Variant(
        "cohere2 window pattern v4",
        Cohere2Config(**cohere2, sliding_window_pattern=2, logit_scale=0.3),
        edits=[spell_as_transformers_4, spell_window_pattern],
    )
    yield Variant(
        "cohere2 windows of all layers, untied",
        Cohere2Config(**cohere2, layer_types=["sliding_attention"] * 4, tie_word_embeddings=False),
    )
