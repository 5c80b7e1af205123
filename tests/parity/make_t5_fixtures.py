"""Writes tests/models/fixtures/t5.json: losses and gradients of megatron-core's T5Model, and of the
T5 models of transformers.

    python tests/parity/make_t5_fixtures.py

Weights are a formula of our name and index, and each gradient is given by two projections."""
import json
from pathlib import Path

import mcore_models
import torch
import torch.nn.functional as F
from make_bert_fixtures import fill, projections
from megatron.core.models.T5.t5_model import T5Model
from megatron.core.models.T5.t5_spec import (
    LNImpl,
    decoder_model_with_local_spec,
    encoder_model_with_local_spec,
)
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig
from transformers import MT5Config, T5Config, UMT5Config
from transformers.models.mt5 import modeling_mt5
from transformers.models.t5 import modeling_t5
from transformers.models.umt5 import modeling_umt5

OUTPUT = Path(__file__).resolve().parents[1] / "models/fixtures/t5.json"
ENCODER_LAYERS, DECODER_LAYERS, HIDDEN, HEADS, HEAD, FFN, VOCABULARY = 1, 2, 12, 4, 4, 20, 13
BATCH = dict(
    text_enc=[[2, 5, 4, 3, 7, 8, 4, 3], [2, 4, 3, 9, 3, 0, 0, 0]],
    enc_mask=[[1] * 8, [1] * 5 + [0] * 3],
    text_dec=[[1, 6, 11, 10, 3], [1, 12, 5, 0, 0]],
    dec_mask=[[1] * 5, [1] * 3 + [0] * 2],
    labels=[[6, 11, 10, 3, 9], [12, 5, 9, 0, 0]],
    loss_mask=[[1] * 5, [1] * 3 + [0] * 2],
)


def loss_of(logits, batch):
    """Takes logits, because the peers' own cross entropies are in float32."""
    losses = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
    return (losses * batch["loss_mask"]).sum() / batch["loss_mask"].sum()


def block_of(layer, count):
    """Returns the layers with a final norm that needs no Transformer Engine."""
    return TransformerBlockSubmodules([layer] * count, layer_norm=LNImpl)


def megatron_case(batch, **position):
    common = {**mcore_models.COMMON_CONFIG, "hidden_size": HIDDEN, "num_attention_heads": HEADS}
    common.update(kv_channels=HEAD, ffn_hidden_size=FFN)
    encoder, decoder = (
        TransformerConfig(**{**common, "num_layers": layers})
        for layers in (ENCODER_LAYERS, DECODER_LAYERS)
    )
    model = T5Model(
        decoder,
        encoder,
        block_of(encoder_model_with_local_spec(), ENCODER_LAYERS),
        block_of(decoder_model_with_local_spec(), DECODER_LAYERS),
        VOCABULARY,
        8,
        share_embeddings_and_output_weights=True,
        **position,
    ).double()
    parameters = {mcore_models.te_name(name): p for name, p in model.named_parameters()}
    fill(parameters)

    def hidden(queries, keys):
        return ~(queries[:, None, :, None] * keys[:, None, None, :]).bool()

    encoder_mask, decoder_mask = batch["enc_mask"], batch["dec_mask"]
    later = torch.ones(5, 5).triu(1).bool()
    logits = model(
        batch["text_enc"],
        batch["text_dec"],
        hidden(encoder_mask, encoder_mask),
        hidden(decoder_mask, decoder_mask) | later,
        hidden(decoder_mask, encoder_mask),
    )
    loss = loss_of(logits, batch)
    loss.backward()
    return loss, {name: p.grad for name, p in parameters.items()}


def our_parts(per_layer, is_gated):
    """Yields our name, and the names of their tensors with the number of heads of each run."""
    yield "embedding.word_embeddings.weight", ["shared.weight"], 1
    for stack, layers in (("encoder", ENCODER_LAYERS), ("decoder", DECODER_LAYERS)):
        bias = "relative_attention_bias.weight"
        yield f"{stack}.final_layernorm.weight", [f"{stack}.final_layer_norm.weight"], 1
        if not per_layer:
            theirs = f"{stack}.block.0.layer.0.SelfAttention.{bias}"
            yield f"{stack}_relative_pos_emb.{bias}", [theirs], 1
        for i in range(layers):
            ours, theirs = f"{stack}.layers.{i}.", f"{stack}.block.{i}.layer."
            attention = theirs + "0.SelfAttention."
            yield ours + "self_attention.linear_qkv.layer_norm_weight", [
                theirs + "0.layer_norm.weight"
            ], 1
            yield ours + "self_attention.linear_qkv.weight", [
                f"{attention}{x}.weight" for x in "qkv"
            ], HEADS
            yield ours + "self_attention.linear_proj.weight", [attention + "o.weight"], 1
            if per_layer:
                yield ours + "self_attention.relative_pos_emb." + bias, [attention + bias], 1
            mlp = theirs + "1."
            if stack == "decoder":
                attention, mlp = theirs + "1.EncDecAttention.", theirs + "2."
                yield ours + "pre_cross_attn_layernorm.weight", [theirs + "1.layer_norm.weight"], 1
                yield ours + "cross_attention.linear_q.weight", [attention + "q.weight"], 1
                yield ours + "cross_attention.linear_kv.weight", [
                    f"{attention}{x}.weight" for x in "kv"
                ], HEADS
                yield ours + "cross_attention.linear_proj.weight", [attention + "o.weight"], 1
            dense = mlp + "DenseReluDense."
            yield ours + "mlp.linear_fc1.layer_norm_weight", [mlp + "layer_norm.weight"], 1
            inputs = ["wi_0.weight", "wi_1.weight"] if is_gated else ["wi.weight"]
            yield ours + "mlp.linear_fc1.weight", [dense + one for one in inputs], 1
            yield ours + "mlp.linear_fc2.weight", [dense + "wo.weight"], 1


def merged(tensors, runs):
    """Returns our tensor: of each run in turn, the rows of all tensors."""
    if runs == 1:
        return torch.cat(tensors)
    rows = [tensor.view(runs, -1, tensor.size(1)) for tensor in tensors]
    return torch.cat(rows, 1).flatten(0, 1)


def transformers_case(batch, model, per_layer, is_gated):
    model = model.double()
    theirs = dict(model.named_parameters())
    parts = list(our_parts(per_layer, is_gated))
    ours = {
        name: torch.nn.Parameter(merged([theirs[key].data for key in keys], runs))
        for name, keys, runs in parts
    }
    fill(ours)
    for name, keys, runs in parts:
        if runs == 1:
            values = ours[name].data.split([theirs[key].size(0) for key in keys])
        else:
            rows = ours[name].data.view(runs, len(keys), -1, ours[name].size(1))
            values = [rows[:, i].flatten(0, 1) for i in range(len(keys))]
        for key, value in zip(keys, values):
            theirs[key].data.copy_(value)
    assert set(theirs) == {key for _, keys, _ in parts for key in keys}, theirs.keys()
    logits = model(
        input_ids=batch["text_enc"],
        attention_mask=batch["enc_mask"],
        decoder_input_ids=batch["text_dec"],
        decoder_attention_mask=batch["dec_mask"],
        use_cache=False,
    ).logits
    loss = loss_of(logits, batch)
    loss.backward()
    return loss, {
        name: merged([theirs[key].grad for key in keys], runs) for name, keys, runs in parts
    }


def exact_norm(self, hidden):
    variance = hidden.pow(2).mean(-1, keepdim=True)
    return self.weight * hidden * torch.rsqrt(variance + self.variance_epsilon)


def main():
    batch = {name: torch.tensor(values) for name, values in BATCH.items()}
    results = dict(
        learned=megatron_case(batch, position_embedding_type="learned_absolute"),
        rope=megatron_case(batch, position_embedding_type="rope"),
    )
    # transformers rounds norms and probabilities to float32 in any dtype.
    torch.Tensor.float = lambda self: self
    modeling_t5.T5LayerNorm.forward = exact_norm
    modeling_mt5.MT5LayerNorm.forward = exact_norm
    modeling_umt5.UMT5LayerNorm.forward = exact_norm
    sizes = dict(
        vocab_size=VOCABULARY,
        d_model=HIDDEN,
        d_kv=HEAD,
        d_ff=FFN,
        num_layers=ENCODER_LAYERS,
        num_decoder_layers=DECODER_LAYERS,
        num_heads=HEADS,
        relative_attention_num_buckets=6,
        relative_attention_max_distance=5,
        dropout_rate=0,
        attn_implementation="eager",
    )
    results["t5"] = transformers_case(
        batch, modeling_t5.T5ForConditionalGeneration(T5Config(**sizes)), False, False
    )
    gated = T5Config(**sizes, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    results["t5_gated"] = transformers_case(
        batch, modeling_t5.T5ForConditionalGeneration(gated), False, True
    )
    results["mt5"] = transformers_case(
        batch, modeling_mt5.MT5ForConditionalGeneration(MT5Config(**sizes)), False, True
    )
    results["umt5"] = transformers_case(
        batch, modeling_umt5.UMT5ForConditionalGeneration(UMT5Config(**sizes)), True, True
    )
    fixture = dict(
        batch=BATCH,
        cases={
            case: dict(
                loss=loss.item(),
                gradients={name: projections(value) for name, value in sorted(gradients.items())},
            )
            for case, (loss, gradients) in results.items()
        },
    )
    OUTPUT.write_text(json.dumps(fixture, separators=(",", ":")) + "\n")
    print({case: values["loss"] for case, values in fixture["cases"].items()})


if __name__ == "__main__":
    main()
