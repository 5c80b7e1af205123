"""Makes tiny random Hugging Face models, and gives transformers' own answers about them.

There is one of every family and config spelling that the program must read."""
import copy
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file, save_model
from transformers import (
    AutoModelForCausalLM,
    DeepseekV2Config,
    DeepseekV3Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OlmoeConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Starcoder2Config,
)

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


def variants():
    llama, qwen3 = dict(COMMON, vocab_size=131), dict(
        COMMON, vocab_size=131, num_key_value_heads=2, head_dim=24
    )
    gpt2 = dict(
        vocab_size=131,
        n_positions=64,
        n_embd=64,
        n_layer=3,
        n_head=4,
        bos_token_id=None,
        eos_token_id=None,
    )
    yield Variant("gpt2", GPT2Config(**gpt2))
    yield Variant("gpt2 first spelling", GPT2Config(**gpt2), edits=[drop_transformer_prefix])
    yield Variant(
        "gpt2 own ffn size, erf gelu, untied",
        GPT2Config(**gpt2, n_inner=96, activation_function="gelu", tie_word_embeddings=False),
    )
    yield Variant("gpt2 by save_model", GPT2Config(**gpt2), edits=[save_with_safetensors])
    for kind, tied in {
        "llama": LlamaConfig(**llama, tie_word_embeddings=True),
        "qwen2": Qwen2Config(**llama, num_key_value_heads=4, tie_word_embeddings=True),
        "qwen3": Qwen3Config(**qwen3, tie_word_embeddings=True),
        "mistral": MistralConfig(**llama, num_key_value_heads=4, tie_word_embeddings=True),
        "starcoder2": Starcoder2Config(**llama, num_key_value_heads=4),
    }.items():
        yield Variant(f"{kind} tied by save_model", tied, edits=[save_with_safetensors])
    yield Variant("llama mha", LlamaConfig(**llama))
    yield Variant("llama mha sharded", LlamaConfig(**llama), shard_size="60KB")
    yield Variant(
        "llama gqa llama3 rope",
        LlamaConfig(**llama, num_key_value_heads=2, rope_parameters=LLAMA3_SCALING),
    )
    yield Variant(
        "llama gqa llama3 rope v4",
        LlamaConfig(**llama, num_key_value_heads=2, rope_parameters=LLAMA3_SCALING),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "llama linear rope v4 type",
        LlamaConfig(
            **llama, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)
        ),
        edits=[spell_as_transformers_4, spell_rope_scaling_type],
    )
    yield Variant(
        "llama mqa tied own head size",
        LlamaConfig(**llama, num_key_value_heads=1, head_dim=24, tie_word_embeddings=True),
    )
    yield Variant("llama biases", LlamaConfig(**llama, attention_bias=True, mlp_bias=True))
    yield Variant("qwen2", Qwen2Config(**llama, num_key_value_heads=2))
    yield Variant(
        "qwen2 tied v4",
        Qwen2Config(**llama, num_key_value_heads=4, tie_word_embeddings=True),
        edits=[spell_as_transformers_4],
    )
    yield Variant("qwen3", Qwen3Config(**qwen3))
    yield Variant(
        "qwen3 tied yarn",
        Qwen3Config(
            **qwen3,
            tie_word_embeddings=True,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1000000.0,
                factor=4.0,
                original_max_position_embeddings=16,
            ),
        ),
    )
    yield Variant(
        "mistral sliding window", MistralConfig(**llama, num_key_value_heads=2, sliding_window=7)
    )
    yield Variant(
        "mistral full attention", MistralConfig(**llama, num_key_value_heads=2, sliding_window=None)
    )
    starcoder2 = dict(llama, num_key_value_heads=2)
    yield Variant("starcoder2", Starcoder2Config(**starcoder2))
    yield Variant(
        "starcoder2 untied v4, sliding window",
        Starcoder2Config(**starcoder2, tie_word_embeddings=False, sliding_window=7),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "starcoder2 without biases, linear rope",
        Starcoder2Config(
            **starcoder2,
            use_bias=False,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0),
        ),
    )


def expert_variants():
    """Models with experts.
    transformers adds its balancing loss to the loss that it returns, not to the loss here."""
    common = dict(COMMON, vocab_size=131, num_key_value_heads=2, router_aux_loss_coef=0.0)
    mixtral = dict(common, num_local_experts=6, num_experts_per_tok=3)
    qwen = dict(common, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=48)
    yield Variant("mixtral", MixtralConfig(**mixtral))
    yield Variant("mixtral stacked", MixtralConfig(**mixtral), stacked=True)
    yield Variant(
        "mixtral sliding window sharded v4",
        MixtralConfig(**mixtral, sliding_window=7, head_dim=24),
        shard_size="60KB",
        edits=[spell_as_transformers_4],
    )
    qwen2 = dict(qwen, shared_expert_intermediate_size=80)
    yield Variant("qwen2_moe", Qwen2MoeConfig(**qwen2))
    yield Variant(
        "qwen2_moe renormalised, a dense layer",
        Qwen2MoeConfig(**qwen2, norm_topk_prob=True, mlp_only_layers=[1]),
    )
    yield Variant(
        "qwen2_moe tied v4, no QKV biases",
        Qwen2MoeConfig(**qwen2, qkv_bias=False, tie_word_embeddings=True),
        edits=[spell_as_transformers_4],
    )
    yield Variant("qwen3_moe", Qwen3MoeConfig(**qwen, head_dim=24))
    yield Variant(
        "qwen3_moe renormalised, every second layer",
        Qwen3MoeConfig(**qwen, norm_topk_prob=True, decoder_sparse_step=2, head_dim=24),
    )
    yield Variant(
        "qwen3_moe stacked, sliding window, one expert",
        Qwen3MoeConfig(
            **dict(qwen, num_experts_per_tok=1), use_sliding_window=True, sliding_window=7
        ),
        stacked=True,
    )
    yield Variant(
        "qwen3_moe tied v4",
        Qwen3MoeConfig(**qwen, norm_topk_prob=True, tie_word_embeddings=True),
        edits=[spell_as_transformers_4],
    )
    olmoe = dict(common, num_key_value_heads=4, num_experts=6, num_experts_per_tok=3)
    yield Variant("olmoe", OlmoeConfig(**olmoe))
    yield Variant(
        "olmoe renormalised, gqa, clipped",
        OlmoeConfig(**dict(olmoe, num_key_value_heads=2), norm_topk_prob=True, clip_qkv=1.25),
    )
    yield Variant(
        "olmoe stacked, tied", OlmoeConfig(**olmoe, tie_word_embeddings=True), stacked=True
    )


def is_correction_bias(name):
    """A buffer of DeepSeek-V3's router that a folder holds and no gradient changes."""
    return name.endswith("e_score_correction_bias")


def deepseek_variants():
    """Models with multi-latent attention."""
    common = dict(
        COMMON,
        vocab_size=131,
        num_key_value_heads=4,
        q_lora_rank=20,
        kv_lora_rank=12,
        qk_nope_head_dim=10,
        qk_rope_head_dim=8,
        v_head_dim=14,
        n_routed_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=24,
        first_k_dense_replace=1,
        rms_norm_eps=1e-5,
    )
    yarn = dict(
        rope_type="yarn",
        rope_theta=10000.0,
        factor=4.0,
        original_max_position_embeddings=16,
        mscale=0.7,
        mscale_all_dim=0.6,
    )
    yield Variant(
        "deepseek_v2 without a latent of queries, yarn",
        DeepseekV2Config(**dict(common, q_lora_rank=None), rope_parameters=yarn),
    )
    yield Variant(
        "deepseek_v2 groups of experts, scaled, tied",
        DeepseekV2Config(
            **common,
            topk_method="group_limited_greedy",
            n_group=4,
            topk_group=3,
            routed_scaling_factor=1.5,
            n_shared_experts=1,
            tie_word_embeddings=True,
        ),
        stacked=True,
    )
    v3 = dict(common, num_experts_per_tok=4, n_group=4, topk_group=2)
    yield Variant("deepseek_v3", DeepseekV3Config(**v3))
    yield Variant(
        "deepseek_v3 yarn, one group, v4",
        DeepseekV3Config(
            **dict(v3, n_group=1, topk_group=1, q_lora_rank=None), rope_parameters=yarn
        ),
        edits=[spell_as_transformers_4],
    )


def all_variants():
    yield from variants()
    yield from expert_variants()
    yield from deepseek_variants()


def build(config, seed):
    """Makes a model in which no weight or bias is neutral.
    Norms are near one, biases are near zero, and none is at either."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm_weight = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(
                1 + 0.3 * noise
                if is_norm_weight
                else 0.2 * noise
                if parameter.dim() == 1
                else 0.12 * noise
            )
        for name, buffer in model.named_buffers():
            if is_correction_bias(name):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
    return model


def save(variant, directory, seed=7):
    """Writes the variant's model as real checkpoints look and returns the model."""
    model = build(variant.config, seed)
    model.save_pretrained(
        directory, max_shard_size=variant.shard_size, save_original_format=not variant.stacked
    )
    for edit in variant.edits:
        edit(directory)
    return model


def log_probabilities(model, rows):
    """Returns log p(ids[t+1] | ids[..t]) of each row: [rows, length − 1].
    The softmax is in float32 at least."""
    with torch.no_grad():
        logits = model(torch.as_tensor(rows)).logits.float()
    return (
        torch.log_softmax(logits[:, :-1], -1)
        .gather(-1, torch.as_tensor(rows)[:, 1:, None])[..., 0]
        .numpy()
    )


def published_tensors(model, directory):
    """The model's parameters under the names that published checkpoints have."""
    model.save_pretrained(directory)
    return load_file(Path(directory) / "model.safetensors")


def logits_of_rows(model, tokens):
    return model(tokens).logits


def loss_and_gradients(model, rows, logits_of=logits_of_rows):
    """The mean token cross entropy over all rows, and its gradient by published name.
    logits_of(model, tokens) says what a token sees."""
    model.zero_grad()
    rows = torch.as_tensor(np.asarray(rows))
    logits = logits_of(model, rows[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    gradients = copy.deepcopy(model)
    with torch.no_grad():
        for gradient, parameter in zip(gradients.parameters(), model.parameters()):
            gradient.copy_(parameter.grad)
        for name, buffer in gradients.named_buffers():
            if is_correction_bias(name):
                buffer.zero_()
    with tempfile.TemporaryDirectory() as directory:
        tensors = published_tensors(gradients, directory)
    return loss.item(), {name: tensor.numpy() for name, tensor in tensors.items()}


def greedy(model, ids, count):
    """The ids that greedy decoding appends."""
    ids = torch.as_tensor([ids])
    return model.generate(
        ids, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, ids.shape[1] :].tolist()
