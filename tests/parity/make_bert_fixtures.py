"""Writes tests/models/fixtures/bert.json: losses and gradients of megatron-core's BertModel.

    python tests/parity/make_bert_fixtures.py

Weights are a formula of name and index, and each gradient is given by two projections."""
import json
from pathlib import Path

import mcore_models
import torch
import torch.nn.functional as F
from megatron.core.models.bert.bert_layer_specs import bert_layer_local_spec
from megatron.core.models.bert.bert_model import BertModel
from megatron.core.transformer.transformer_config import TransformerConfig

OUTPUT = Path(__file__).resolve().parents[1] / "models/fixtures/bert.json"
CONFIG = dict(
    num_layers=2, hidden_size=12, num_attention_heads=4, kv_channels=4, ffn_hidden_size=20
)
BATCH = dict(
    tokens=[[2, 5, 4, 3, 7, 8, 4, 3], [2, 4, 3, 9, 3, 0, 0, 0], [2, 12, 10, 4, 3, 6, 3, 0]],
    types=[[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 0]],
    labels=[[0, 0, 11, 0, 0, 0, 6, 0], [0, 10, 0, 0, 0, 0, 0, 0], [0, 12, 0, 7, 0, 0, 0, 0]],
    loss_mask=[[0, 0, 1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0, 0, 0]],
    padding_mask=[[1] * 8, [1] * 5 + [0] * 3, [1] * 7 + [0]],
    is_random=[0, 1, 1],
)


def fill(parameters):
    """Sets weight i of the k-th name to sin(1.7·i + k)/5, and those of norms to 1 more."""
    for k, name in enumerate(sorted(parameters)):
        value = parameters[name].data
        index = torch.arange(value.numel(), dtype=torch.float64)
        is_norm = "norm" in name and name.endswith("weight")
        value.copy_((torch.sin(1.7 * index + k) / 5 + is_norm).view(value.shape))


def projections(gradient):
    flat = gradient.flatten()
    index = torch.arange(flat.numel(), dtype=torch.float64)
    directions = torch.sin(0.9 * index + 0.2), torch.cos(0.37 * index)
    return [(flat * direction).sum().item() for direction in directions]


def main():
    config = TransformerConfig(**{**mcore_models.COMMON_CONFIG, **CONFIG})
    model = BertModel(
        config, 2, bert_layer_local_spec, 13, 8, share_embeddings_and_output_weights=True
    ).double()
    parameters = {mcore_models.te_name(name): p for name, p in model.named_parameters()}
    fill(parameters)
    batch = {name: torch.tensor(values) for name, values in BATCH.items()}
    # Logits, because megatron-core's own cross entropy is in float32.
    logits, classes = model(batch["tokens"], batch["padding_mask"], batch["types"])
    mask = batch["loss_mask"]
    token_losses = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
    losses = {
        "lm loss": (token_losses * mask).sum() / mask.sum(),
        "sop loss": F.cross_entropy(classes, batch["is_random"]),
    }
    sum(losses.values()).backward()
    fixture = dict(
        batch=BATCH,
        losses={name: loss.item() for name, loss in losses.items()},
        gradients={name: projections(p.grad) for name, p in sorted(parameters.items())},
    )
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(fixture, separators=(",", ":")) + "\n")
    print(fixture["losses"], len(parameters), logits.dtype)


if __name__ == "__main__":
    main()
