"""Variants of mixture-of-experts models: flags of our program beside megatron-core's settings."""
import torch.nn.functional as F

from mcore_models import CLAMP, LLAMA_CONFIG, LLAMA_FLAGS, LLAMA_MODEL, NUM_LAYERS, Variant
from megatron.core.activations import squared_relu
from megatron.core.fusions.fused_bias_geglu import quick_gelu

NUM_EXPERTS, TOPK, EXPERT_SIZE, SHARED_SIZE = 8, 2, 48, 80
# The loss of the auxiliary terms is as large as the main loss, so that an error in them shows.
COEFFICIENT, BIAS_UPDATE_RATE = 0.5, 0.05


class MoeVariant(Variant):
    """A Variant whose `gate` says whether the shared experts have a gate."""

    gate = False


def variant(
    name, settings, flags=(), config=None, *, base=(LLAMA_FLAGS, LLAMA_CONFIG, LLAMA_MODEL)
):
    """Makes a variant from settings that have the same name in both programs.
    Other flags and settings are given on their own."""
    settings = {
        "moe_ffn_hidden_size": EXPERT_SIZE,
        "moe_router_topk": TOPK,
        **settings,
    }
    flags = [*base[0], "--num-experts", settings.pop("num_experts", NUM_EXPERTS), *flags]
    experts = flags[flags.index("--num-experts") + 1]
    gate = settings.get("moe_shared_expert_gate", False)
    for key, value in settings.items():
        values = value if isinstance(value, list) else [] if value is True else [value]
        flags += ["--" + key.replace("_", "-"), *values]
    settings.pop("moe_shared_expert_gate", None)
    made = MoeVariant(
        name, flags, {**base[1], "num_moe_experts": experts, **settings, **(config or {})}, base[2]
    )
    made.gate = gate
    return made


def layer_list(name, text, pattern):
    return variant(
        name,
        dict(moe_shared_expert_intermediate_size=SHARED_SIZE),
        ["--moe-layer-freq", text],
        dict(moe_layer_freq=pattern),
    )


def balanced(name, kind, coefficient=COEFFICIENT, **settings):
    return variant(
        name,
        dict(moe_router_load_balancing_type=kind, moe_aux_loss_coeff=coefficient, **settings),
    )


GROUPS = dict(
    num_experts=16,
    moe_router_topk=4,
    moe_router_num_groups=4,
    moe_router_group_topk=2,
)
BIASED = dict(
    moe_router_score_function="sigmoid",
    moe_router_enable_expert_bias=True,
    moe_router_bias_update_rate=BIAS_UPDATE_RATE,
)


def routing_variants():
    yield variant("top-2 of 8", {})
    yield variant(
        "pre-softmax, scaled", dict(moe_router_pre_softmax=True, moe_router_topk_scaling_factor=1.7)
    )
    yield variant(
        "sigmoid, groups, expert bias, scaled",
        dict(GROUPS, **BIASED, moe_router_topk_scaling_factor=2.5),
    )
    yield balanced("sigmoid, groups, expert bias, seq_aux_loss", "seq_aux_loss", **GROUPS, **BIASED)
    yield balanced("softmax, groups, aux_loss", "aux_loss", **GROUPS, moe_router_pre_softmax=True)
    yield variant("top-1, pre-softmax", dict(moe_router_topk=1, moe_router_pre_softmax=True))
    yield variant(
        "top-1 sigmoid, probs on input",
        dict(moe_router_topk=1, moe_router_score_function="sigmoid", moe_apply_probs_on_input=True),
    )
    yield variant("router in fp64", dict(moe_router_dtype="fp64"))


def expert_variants():
    shared = dict(moe_shared_expert_intermediate_size=SHARED_SIZE)
    yield variant("shared experts", shared)
    yield variant("shared experts with gate", dict(shared, moe_shared_expert_gate=True))
    yield layer_list("dense first layer", "[0]*1+[1]*2", [0, 1, 1])
    yield layer_list("every second layer", "2", 2)
    plain = [flag for flag in LLAMA_FLAGS if flag != "--swiglu"]
    ungated = {key: value for key, value in LLAMA_CONFIG.items() if key != "gated_linear_unit"}
    yield variant(
        "squared relu",
        {},
        base=([*plain, "--squared-relu"], dict(ungated, activation_func=squared_relu), LLAMA_MODEL),
    )
    yield variant(
        "geglu",
        {},
        base=([*plain, "--geglu"], dict(LLAMA_CONFIG, activation_func=F.gelu), LLAMA_MODEL),
    )
    yield variant("gelu with biases, tied", {}, base=([], {}, {}))
    yield variant(
        "swiglu with biases",
        {},
        base=(
            ["--swiglu", "--ffn-hidden-size", 112],
            dict(gated_linear_unit=True, activation_func=F.silu, ffn_hidden_size=112),
            {},
        ),
    )
    yield variant("clamped swiglu", dict(activation_func_clamp_value=CLAMP))
    yield variant(
        "clamped quick-geglu with biases",
        dict(activation_func_clamp_value=CLAMP, glu_linear_offset=1),
        base=(
            ["--quick-geglu", "--ffn-hidden-size", 112],
            dict(gated_linear_unit=True, activation_func=quick_gelu, ffn_hidden_size=112),
            {},
        ),
    )


def balancing_variants():
    for kind in ("aux_loss", "seq_aux_loss", "global_aux_loss"):
        yield balanced(kind, kind)
    yield balanced("aux_loss of sigmoid", "aux_loss", moe_router_score_function="sigmoid")
    yield balanced("two losses", ["seq_aux_loss", "global_aux_loss"], [0.3, 0.7])
    yield variant("z_loss", dict(moe_z_loss_coeff=0.05))
    yield balanced("aux_loss and z_loss", "aux_loss", moe_z_loss_coeff=0.05)
    yield balanced("capacity 1", "aux_loss", moe_expert_capacity_factor=1.0)
    yield balanced(
        "capacity 1.2, padded",
        "aux_loss",
        moe_expert_capacity_factor=1.2,
        moe_pad_expert_input_to_capacity=True,
        moe_token_dispatcher_type="alltoall",
    )
    yield variant("sinkhorn", dict(moe_router_load_balancing_type="sinkhorn"))
    yield variant(
        "sinkhorn, top-1", dict(moe_router_load_balancing_type="sinkhorn", moe_router_topk=1)
    )


def variants():
    yield from routing_variants()
    yield from expert_variants()
    yield from balancing_variants()


def variant_of(name):
    return next(made for made in variants() if made.name == name)
