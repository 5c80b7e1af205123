"""Makes the real megatron-core MambaModel on a CPU.

megatron-core's Mamba layers call kernels of the packages mamba_ssm and causal_conv1d, which need
CUDA. The scan of transformers and a plain gated norm take their place; the layout of the input
projection, the groups, the norms and the names of checkpoints are megatron-core's."""
import os
import re
import sys
from types import ModuleType

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
import torch
import torch.nn.functional as F
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan


class GatedNorm(torch.nn.Module):
    """norm(x · silu(z)) · weight, in groups."""

    def __init__(self, size, eps, group_size, norm_before_gate, device=None, dtype=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.eps, self.group_size = eps, group_size
        if norm_before_gate:
            raise ValueError("megatron-core has norms behind the gate")

    def forward(self, x, z):
        groups = (x * F.silu(z)).unflatten(-1, (-1, self.group_size))
        return F.rms_norm(groups, (self.group_size,), eps=self.eps).flatten(-2) * self.weight


def scan(x, dt, A, B, C, chunk_size, z=None, **options):
    if z is not None:
        raise ValueError("megatron-core applies the gate itself")
    return mamba2_chunk_scan(x, dt, A, B, C, chunk_size, **options)


def install_kernels():
    ops = "mamba_ssm.ops.triton"
    for name in ("mamba_ssm", "mamba_ssm.ops", ops):
        sys.modules[name] = ModuleType(name)
    for name, members in {
        "selective_state_update": {"selective_state_update": None},
        "layernorm_gated": {"RMSNorm": GatedNorm},
        "ssd_combined": {
            "mamba_chunk_scan_combined": scan,
            "mamba_split_conv1d_scan_combined": None,
        },
    }.items():
        module = sys.modules[f"{ops}.{name}"] = ModuleType(f"{ops}.{name}")
        vars(module).update(members)


install_kernels()
import mcore_cpu

mcore_cpu.init()
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.models.mamba import MambaModel
from megatron.core.ssm import mamba_block
from megatron.core.ssm.mamba_block import MambaStack, MambaStackSubmodules
from megatron.core.ssm.mamba_layer import MambaLayer, MambaLayerSubmodules
from megatron.core.ssm.mamba_mixer import MambaMixer, MambaMixerSubmodules
from megatron.core.ssm.mlp_layer import MLPLayer
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

mamba_block.TENorm = WrappedTorchNorm
PATTERN, VOCAB_SIZE, SEQ_LENGTH = "M-*-M", 131, 40
FLAGS = [
    *("--hybrid-layer-pattern", PATTERN, "--hidden-size", 64, "--num-attention-heads", 4),
    *("--ffn-hidden-size", 112, "--mamba-state-dim", 24, "--mamba-head-dim", 16),
    *("--mamba-num-groups", 2, "--position-embedding-type", "none", "--normalization", "RMSNorm"),
    *("--disable-bias-linear", "--untie-embeddings-and-output-weights"),
    *("--max-position-embeddings", 64),
]
CONFIG = dict(
    num_layers=len(PATTERN),
    hidden_size=64,
    num_attention_heads=4,
    ffn_hidden_size=112,
    mamba_state_dim=24,
    mamba_head_dim=16,
    mamba_num_groups=2,
    use_mamba_mem_eff_path=False,
    normalization="RMSNorm",
    add_bias_linear=False,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    use_cpu_initialization=True,
    bias_activation_fusion=False,
    bias_dropout_fusion=False,
    masked_softmax_fusion=False,
    gradient_accumulation_fusion=False,
    persist_layer_norm=False,
)


# Norms alone, by the names that they have with Transformer Engine.
FUSED_NORMS = {
    "norm.": "mixer.in_proj.layer_norm_",
    "input_layernorm.": "self_attention.linear_qkv.layer_norm_",
    "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_",
}


def stack_spec():
    """megatron-core's mamba_stack_spec with the layers of its local specs."""
    bda = get_bias_dropout_add
    mixer = ModuleSpec(
        module=MambaMixer,
        submodules=MambaMixerSubmodules(in_proj=ColumnParallelLinear, out_proj=RowParallelLinear),
    )
    attention = ModuleSpec(
        module=SelfAttention,
        params={"attn_mask_type": AttnMaskType.causal},
        submodules=SelfAttentionSubmodules(
            linear_qkv=ColumnParallelLinear,
            core_attention=DotProductAttention,
            linear_proj=RowParallelLinear,
        ),
    )
    mlp = ModuleSpec(
        module=MLP,
        submodules=MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear),
    )
    return ModuleSpec(
        module=MambaStack,
        submodules=MambaStackSubmodules(
            mamba_layer=ModuleSpec(
                module=MambaLayer,
                submodules=MambaLayerSubmodules(
                    norm=WrappedTorchNorm,
                    mixer=mixer,
                    mamba_bda=bda,
                    sharded_state_dict_keys_map=FUSED_NORMS,
                ),
            ),
            attention_layer=ModuleSpec(
                module=TransformerLayer,
                submodules=TransformerLayerSubmodules(
                    input_layernorm=WrappedTorchNorm,
                    self_attention=attention,
                    self_attn_bda=bda,
                    sharded_state_dict_keys_map=FUSED_NORMS,
                ),
            ),
            mlp_layer=ModuleSpec(
                module=MLPLayer,
                submodules=TransformerLayerSubmodules(
                    pre_mlp_layernorm=WrappedTorchNorm,
                    mlp=mlp,
                    mlp_bda=bda,
                    sharded_state_dict_keys_map=FUSED_NORMS,
                ),
            ),
        ),
    )


def build(seed=7):
    """A model in which no weight is neutral."""
    torch.manual_seed(seed)
    model = MambaModel(
        TransformerConfig(**CONFIG),
        stack_spec(),
        VOCAB_SIZE,
        64,
        hybrid_override_pattern=PATTERN,
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            is_norm = name.endswith("norm.weight")
            parameter.copy_(1 + 0.3 * noise if is_norm else 0.15 * noise)
    return model


def our_name(name):
    """The name of one of its parameters in our checkpoints."""
    layer = re.match(r"decoder\.layers\.\d+\.", name)
    for alone, fused in FUSED_NORMS.items():
        if layer and name[layer.end() :].startswith(alone):
            return name[: layer.end()] + fused + name[layer.end() + len(alone) :]
    return name


def weights(model):
    """Its parameters by our names."""
    return {
        our_name(name): parameter.detach().numpy() for name, parameter in model.named_parameters()
    }


def token_losses(model, rows):
    rows = torch.as_tensor(rows)
    length = rows.shape[1] - 1
    positions = torch.arange(length).expand(rows.shape[0], length)
    mask = ~torch.tril(torch.ones(1, 1, length, length, dtype=torch.bool))
    return model(rows[:, :-1], positions, mask, labels=rows[:, 1:])


def loss_and_gradients(model, rows):
    """The mean token cross entropy and its gradient by our names."""
    model.zero_grad()
    loss = token_losses(model, rows).mean()
    loss.backward()
    return loss.item(), {
        our_name(name): parameter.grad.numpy() for name, parameter in model.named_parameters()
    }
