"""Makes the real megatron-core GPT on a CPU.

Small variants stand beside the flags that describe them; loss and gradients are given under
Transformer-Engine names."""
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
import mcore_cpu
import torch
import torch.nn.functional as F

mcore_cpu.init()
from megatron.core.activations import squared_relu
from megatron.core.fusions import fused_layer_norm
from megatron.core.fusions.fused_bias_geglu import quick_gelu
from megatron.core.models import backends
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_mtp_block_spec,
)
from megatron.core.transformer import transformer_block
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
from megatron.core.transformer.utils import openai_gelu

VOCAB_SIZE, SEQ_LENGTH, MAX_POSITIONS, NUM_LAYERS = 131, 40, 64, 3
COMMON_FLAGS = [
    "--num-layers",
    NUM_LAYERS,
    "--hidden-size",
    64,
    "--num-attention-heads",
    4,
    "--max-position-embeddings",
    MAX_POSITIONS,
]
COMMON_CONFIG = dict(
    num_layers=NUM_LAYERS,
    hidden_size=64,
    num_attention_heads=4,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    use_cpu_initialization=True,
    bias_activation_fusion=False,
    bias_dropout_fusion=False,
    masked_softmax_fusion=False,
    apply_rope_fusion=False,
    gradient_accumulation_fusion=False,
    persist_layer_norm=False,
)
CLAMP = 0.1  # limits many gates and ups of these models
LLAMA_FLAGS = [
    "--normalization",
    "RMSNorm",
    "--position-embedding-type",
    "rope",
    "--swiglu",
    "--ffn-hidden-size",
    112,
    "--disable-bias-linear",
    "--untie-embeddings-and-output-weights",
]
LLAMA_CONFIG = dict(
    normalization="RMSNorm",
    gated_linear_unit=True,
    activation_func=F.silu,
    ffn_hidden_size=112,
    add_bias_linear=False,
)
LLAMA_MODEL = dict(position_embedding_type="rope", share_embeddings_and_output_weights=False)
GQA_FLAGS, GQA_CONFIG = ["--group-query-attention", "--num-query-groups", 2], dict(
    num_query_groups=2
)


@dataclass
class Variant:
    """Flags of our program, and the TransformerConfig and GPTModel arguments that mean the same."""

    name: str
    flags: list
    config: dict
    model: dict = field(default_factory=dict)
    attributes: dict = field(
        default_factory=dict
    )  # set on the TransformerConfig afterwards, as Megatron-LM does for YaRN


def llama(name, flags=(), config=None, model=None):
    return Variant(
        name,
        [*LLAMA_FLAGS, *flags],
        {**LLAMA_CONFIG, **(config or {})},
        {**LLAMA_MODEL, **(model or {})},
    )


LATENT_FLAGS = [
    "--multi-latent-attention",
    *["--kv-lora-rank", 12],
    *["--qk-head-dim", 10],
    *["--qk-pos-emb-head-dim", 8],
    *["--v-head-dim", 14],
]
LATENT_CONFIG = dict(
    multi_latent_attention=True,
    q_lora_rank=None,
    kv_lora_rank=12,
    qk_head_dim=10,
    qk_pos_emb_head_dim=8,
    v_head_dim=14,
)


def latent_variants():
    """Models with multi-latent attention."""
    yield llama(
        "mla, norms of latents, yarn with mscale",
        [
            *LATENT_FLAGS,
            "--qk-layernorm",
            *["--q-lora-rank", 20],
            *["--rotary-scaling-factor", 4],
            *["--original-max-position-embeddings", 16],
            *["--mscale", 0.7, "--mscale-all-dim", 0.6, "--beta-fast", 8],
        ],
        dict(
            LATENT_CONFIG,
            qk_layernorm=True,
            q_lora_rank=20,
            rope_type="yarn",
            rotary_scaling_factor=4.0,
            original_max_position_embeddings=16,
            mscale=0.7,
            mscale_all_dim=0.6,
            beta_fast=8.0,
        ),
    )
    yield llama(
        "mla without a latent of queries, plain rope",
        [*LATENT_FLAGS, "--rope-type", "rope"],
        dict(LATENT_CONFIG, rope_type="rope"),
    )
    yield Variant(
        "mla with layernorm and biases, default yarn",
        [
            *LATENT_FLAGS,
            "--qk-layernorm",
            *["--q-lora-rank", 20],
            *["--position-embedding-type", "rope"],
        ],
        dict(
            LATENT_CONFIG,
            normalization="LayerNorm",
            qk_layernorm=True,
            q_lora_rank=20,
            rotary_scaling_factor=1.0,
        ),
        dict(position_embedding_type="rope"),
    )


def multi_token_variants():
    """Models with two depths of multi-token prediction."""
    flags = ["--mtp-num-layers", 2, "--mtp-loss-scaling-factor", 0.3]
    config = dict(mtp_num_layers=2, mtp_loss_scaling_factor=0.3)
    yield llama("multi-token prediction", [*GQA_FLAGS, *flags], {**GQA_CONFIG, **config})
    yield Variant(
        "multi-token prediction, layernorm with biases, tied",
        ["--position-embedding-type", "rope", *flags],
        config,
        dict(position_embedding_type="rope"),
    )
    yield llama(
        "multi-token prediction, mla",
        [*LATENT_FLAGS, "--rope-type", "rope", *flags],
        dict(LATENT_CONFIG, rope_type="rope", **config),
    )


def variants():
    yield from multi_token_variants()
    yield from latent_variants()
    rope = dict(position_embedding_type="rope")
    yield Variant("layernorm, learned positions, gelu, tied", [], {})
    yield Variant(
        "openai gelu, untied, own norm epsilon",
        ["--openai-gelu", "--untie-embeddings-and-output-weights", "--norm-epsilon", 1e-3],
        dict(activation_func=openai_gelu, layernorm_epsilon=1e-3),
        dict(share_embeddings_and_output_weights=False),
    )
    yield llama("rmsnorm, rope, swiglu, gqa, no bias, untied", GQA_FLAGS, GQA_CONFIG)
    yield llama(
        "mqa, own head size, tied last",
        ["--group-query-attention", "--num-query-groups", 1, "--kv-channels", 24],
        dict(num_query_groups=1, kv_channels=24),
    )
    yield Variant(
        "rotary percent 0.5, squared relu",
        ["--position-embedding-type", "rope", "--rotary-percent", 0.5, "--squared-relu"],
        dict(activation_func=squared_relu),
        dict(rope, rotary_percent=0.5),
    )
    yield Variant(
        "interleaved rotary, base 500",
        ["--position-embedding-type", "rope", "--rotary-interleaved", "--rotary-base", 500],
        dict(rotary_interleaved=True),
        dict(rope, rotary_base=500),
    )
    yield Variant(
        "interleaved partial rotary",
        ["--position-embedding-type", "rope", "--rotary-interleaved", "--rotary-percent", 0.5],
        dict(rotary_interleaved=True),
        dict(rope, rotary_percent=0.5),
    )
    yield llama(
        "llama3 rope scaling",
        ["--use-rope-scaling", "--rope-scaling-factor", 8.0],
        None,
        dict(rope_scaling=True, rope_scaling_factor=8.0),
    )
    yield llama(
        "linear rope scaling",
        ["--rotary-seq-len-interpolation-factor", 4],
        None,
        dict(seq_len_interpolation_factor=4),
    )
    yield Variant(
        "yarn",
        [
            "--position-embedding-type",
            "yarn",
            "--rotary-scaling-factor",
            4,
            "--yarn-original-max-position-embeddings",
            16,
            "--yarn-beta-fast",
            8,
            "--yarn-beta-slow",
            1,
            "--mscale",
            1.0,
            "--mscale-all-dim",
            0.0,
        ],
        {},
        dict(position_embedding_type="yarn"),
        dict(
            yarn_rotary_scaling_factor=4.0,
            yarn_original_max_position_embeddings=16,
            yarn_beta_fast=8.0,
            yarn_beta_slow=1.0,
            yarn_mscale=1.0,
            yarn_mscale_all_dim=0.0,
            yarn_correction_range_round_to_int=True,
        ),
    )
    yield Variant(
        "layernorm-1p", ["--apply-layernorm-1p"], dict(layernorm_zero_centered_gamma=True)
    )
    yield llama(
        "qk layernorm of rmsnorm",
        ["--qk-layernorm", *GQA_FLAGS],
        dict(qk_layernorm=True, **GQA_CONFIG),
    )
    yield Variant(
        "qk layernorm with biases",
        ["--qk-layernorm", "--position-embedding-type", "rope"],
        dict(qk_layernorm=True),
        rope,
    )
    yield Variant(
        "no positions",
        ["--position-embedding-type", "none"],
        {},
        dict(position_embedding_type="none"),
    )
    yield llama("bias of qkv only", ["--add-qkv-bias"], dict(add_qkv_bias=True))
    yield Variant(
        "swiglu with biases",
        ["--swiglu", "--ffn-hidden-size", 112],
        dict(gated_linear_unit=True, activation_func=F.silu, ffn_hidden_size=112),
    )
    yield Variant(
        "quick-geglu",
        ["--quick-geglu", "--ffn-hidden-size", 112],
        dict(gated_linear_unit=True, activation_func=quick_gelu, ffn_hidden_size=112),
    )
    yield Variant(
        "quick-geglu, clamped",
        [
            "--quick-geglu",
            *["--ffn-hidden-size", 112],
            *["--activation-func-clamp-value", CLAMP],
            *["--glu-linear-offset", 1],
        ],
        dict(
            gated_linear_unit=True,
            activation_func=quick_gelu,
            ffn_hidden_size=112,
            activation_func_clamp_value=CLAMP,
            glu_linear_offset=1,
        ),
    )
    yield llama("sliding window", ["--window-size", "6,0"], dict(window_size=(6, 0)))
    yield Variant(
        "query-key layer scaling, fp32 softmax",
        ["--apply-query-key-layer-scaling", "--attention-softmax-in-fp32"],
        dict(apply_query_key_layer_scaling=True, attention_softmax_in_fp32=True),
    )


def on_cpu(create):
    """Wraps torch.ones or torch.zeros: they make a CPU tensor where the device is "cuda".
    megatron-core asks for that device for its sliding-window mask and its schedules' token
    counts."""
    return lambda *shape, device=None, **arguments: create(
        *shape, device=None if device == "cuda" else device, **arguments
    )


torch.ones, torch.zeros = on_cpu(torch.ones), on_cpu(torch.zeros)


class TorchLayerNormFunction:
    """Stands in for Apex's CUDA kernel.
    With it, megatron-core's own FusedLayerNorm (the one with weight + 1) runs on a CPU."""

    @staticmethod
    def forward(context, x, weight, bias, shape, epsilon):
        raise NotImplementedError

    @staticmethod
    def apply(x, weight, bias, shape, epsilon):
        return F.layer_norm(x, shape, weight, bias, epsilon)


@contextmanager
def layer_norm_of(config):
    """Chooses FusedLayerNorm for a zero-centred gamma, which torch's norm refuses."""
    if not config.get("layernorm_zero_centered_gamma"):
        yield
        return
    saved = backends.LNImpl, transformer_block.LayerNormImpl
    fused_layer_norm.HAVE_FUSED_LAYER_NORM, fused_layer_norm.FusedLayerNormAffineFunction = (
        True,
        TorchLayerNormFunction,
    )
    backends.LNImpl = transformer_block.LayerNormImpl = fused_layer_norm.FusedLayerNorm
    try:
        yield
    finally:
        backends.LNImpl, transformer_block.LayerNormImpl = saved


def build(variant):
    with layer_norm_of(variant.config):
        is_latent = variant.config.get("multi_latent_attention", False)
        kind = MLATransformerConfig if is_latent else TransformerConfig
        config = kind(**{**COMMON_CONFIG, **variant.config})
        for name, value in variant.attributes.items():
            setattr(config, name, value)
        spec = get_gpt_layer_local_spec(
            qk_layernorm=config.qk_layernorm,
            multi_latent_attention=is_latent,
            normalization=config.normalization,
        )
        arguments = dict(
            share_embeddings_and_output_weights=True, position_embedding_type="learned_absolute"
        )
        if config.mtp_num_layers:
            arguments["mtp_block_spec"] = get_gpt_mtp_block_spec(
                config, spec, use_transformer_engine=False
            )
        return GPTModel(config, spec, VOCAB_SIZE, MAX_POSITIONS, **{**arguments, **variant.model})


def te_name(name, is_latent=False):
    """The Transformer-Engine spelling of a local-spec parameter name."""
    if is_latent:
        name = re.sub(r"\.(q|kv)_layernorm\.(\w+)$", r".linear_\1_up_proj.layer_norm_\2", name)
    else:
        name = re.sub(
            r"\.input_layernorm\.(\w+)$", r".self_attention.linear_qkv.layer_norm_\1", name
        )
    return re.sub(r"\.pre_mlp_layernorm\.(\w+)$", r".mlp.linear_fc1.layer_norm_\1", name)


def te_parameters(model):
    """The parameters by their Transformer-Engine names."""
    names = dict(model.named_parameters())
    is_latent = any("linear_kv_down_proj" in name for name in names)
    return {te_name(name, is_latent): parameter for name, parameter in names.items()}


def shapes(model):
    return {name: tuple(parameter.shape) for name, parameter in te_parameters(model).items()}


def fill(model, tensors):
    """Copies tensors (Transformer-Engine names, numpy) into the model.
    Each must be used and each parameter filled."""
    parameters = te_parameters(model)
    if parameters.keys() != tensors.keys():
        raise ValueError(
            f"checkpoint lacks {sorted(parameters.keys() - tensors.keys())}, "
            f"has besides {sorted(tensors.keys() - parameters.keys())}"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            if tuple(tensors[name].shape) != tuple(parameter.shape):
                raise ValueError(
                    f"{name}: checkpoint {tensors[name].shape}, "
                    f"megatron-core {tuple(parameter.shape)}"
                )
            parameter.copy_(torch.from_numpy(tensors[name]))


def token_losses(model, rows):
    """Cross entropy of every predicted token: [rows, length − 1]."""
    rows = torch.as_tensor(rows)
    length = rows.shape[1] - 1
    positions = torch.arange(length).expand(rows.shape[0], length)
    mask = ~torch.tril(torch.ones(1, 1, length, length, dtype=torch.bool))
    return model(rows[:, :-1], positions, mask, labels=rows[:, 1:])


def depth_losses():
    """The losses of multi-token prediction of the last pass in training, one for each depth."""
    return MTPLossLoggingHelper.tracker.get("values", torch.zeros(0)).tolist()


def loss_and_gradients(model, rows):
    """The mean token cross entropy and its gradient by Transformer-Engine name."""
    model.zero_grad()
    MTPLossLoggingHelper.tracker.clear()
    loss = token_losses(model, rows).mean()
    loss.backward()
    return loss.item(), {
        name: parameter.grad.numpy() for name, parameter in te_parameters(model).items()
    }
