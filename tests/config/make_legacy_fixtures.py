"""Writes fixtures/legacy_flags.json: the results of Megatron-LM's argument code for older flags.

Run it with the environment of tests/parity and the folder of a Megatron-LM checkout (the fixtures
are from d98e8a64 of 2026-08-22): `make_legacy_fixtures.py MEGATRON_LM`. Each case is a list of
flags, which are added to those of a small run, and the resulting settings: the arguments after
validate_args() and the TransformerConfig of core_transformer_config_from_args(), or null if
Megatron-LM refuses the flags.
"""

import contextlib
import io
import itertools
import json
import re
import sys
import typing
from pathlib import Path

typing.override = getattr(
    typing, "override", lambda method: method
)  # Megatron-LM asks for Python 3.12 only because of it
sys.path.insert(0, sys.argv[1])

from megatron.core.activations import squared_relu  # noqa: E402
from megatron.core.datasets.blended_megatron_dataset_config import (
    parse_and_normalize_split,
)  # noqa: E402
from megatron.core.fusions.fused_bias_geglu import quick_gelu  # noqa: E402
from megatron.training import arguments  # noqa: E402
from megatron.training.argument_utils import core_transformer_config_from_args  # noqa: E402

import torch.nn.functional as F  # noqa: E402

BASE = {
    "--num-layers": "2",
    "--hidden-size": "64",
    "--num-attention-heads": "4",
    "--seq-length": "32",
    "--max-position-embeddings": "32",
    "--micro-batch-size": "2",
    "--train-iters": "10",
    "--lr": "1e-3",
    "--transformer-impl": "local",
    "--vocab-file": "vocab.json",
    "--merge-file": "merges.txt",
}
# These flags only choose kernels. Fused kernels need Transformer Engine or refuse activations.
KERNELS = ["--no-rope-fusion", "--no-bias-gelu-fusion", "--no-bias-swiglu-fusion"]
ACTIVATIONS = {
    F.silu: "silu",
    F.gelu: "gelu",
    squared_relu: "squared_relu",
    quick_gelu: "quick_gelu",
}

POSITIONS = [
    ["--position-embedding-type", "rope"],
    ["--position-embedding-type", "learned_absolute"],
    ["--position-embedding-type", "none"],
    ["--position-embedding-type", "yarn"],
]
SWITCHES = [["--no-position-embedding"], ["--use-rotary-position-embeddings"]]
SCALINGS = [
    ["--use-rope-scaling"],
    ["--rope-scaling-factor", "4"],
    ["--rotary-seq-len-interpolation-factor", "2"],
    ["--rotary-scaling-factor", "16"],
]
ALONE = [
    [],
    ["--swiglu"],
    ["--squared-relu"],
    ["--quick-geglu"],
    ["--swiglu", "--squared-relu"],
    ["--swiglu", "--quick-geglu"],
    ["--swiglu", "--ffn-hidden-size", "100"],
    ["--sequence-parallel"],
    ["--bf16"],
    ["--fp16"],
    ["--bf16", "--grad-reduce-in-bf16"],
    ["--no-weight-decay-cond-type", "apply_wd_to_qk_layernorm"],
    ["--num-query-groups", "2"],
    ["--group-query-attention", "--num-query-groups", "2"],
    ["--kv-channels", "32"],
    ["--num-experts", "0"],
    ["--global-batch-size", "6"],
    ["--disable-bias-linear", "--add-qkv-bias"],
    ["--weight-decay-incr-style", "linear"],
    ["--start-weight-decay", "0.1"],
    ["--min-lr", "1"],
    ["--split", "'99,1,0'"],
    ["--split", "[98, 2]"],
    ["--split", "969,30,1"],
    ["--split", "1"],
    ["--split", "1/2;3"],
    ["--encoder-num-layers", "3"],
    ["--encoder-seq-length", "16"],
    ["--tokenizer-type", "NullTokenizer", "--vocab-size", "50"],
    ["--lr-warmup-fraction", ".1", "--lr-warmup-iters", "2"],
]


def cases():
    yield from ALONE
    for count in (1, 2):
        for switches in itertools.permutations(SWITCHES, count):
            yield sum(switches, [])
    for position, switch in itertools.product(POSITIONS, SWITCHES):
        yield position + switch
        yield switch + position
    for scaling in SCALINGS:
        yield POSITIONS[0] + scaling
    for first, second in itertools.permutations(SCALINGS, 2):
        yield POSITIONS[0] + first + second
    for scaling in (
        [],
        SCALINGS[1],
        SCALINGS[3],
        SCALINGS[1] + SCALINGS[3],
        SCALINGS[3] + SCALINGS[1],
    ):
        yield POSITIONS[3] + scaling


def scaling_of(args, config):
    """Returns every scaling of rotary positions, with its factor."""
    if args.position_embedding_type == "yarn":
        found = [["yarn", config.yarn_rotary_scaling_factor]]
    elif args.position_embedding_type == "rope":
        found = [["llama3", args.rope_scaling_factor]] if args.use_rope_scaling else []
    else:
        return []
    if args.rotary_seq_len_interpolation_factor is not None:
        found.append(["linear", args.rotary_seq_len_interpolation_factor])
    return found


def result(flags):
    given = dict(BASE)
    if "--encoder-num-layers" in flags:
        del given["--num-layers"]
    if "--encoder-seq-length" in flags:
        del given["--seq-length"]
    sys.argv = (
        ["pretrain_gpt.py"]
        + KERNELS
        + sum(([key, value] for key, value in given.items()), [])
        + flags
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            args = arguments.parse_args()
            arguments.validate_args(args, {"tokenizer_type": "GPT2BPETokenizer"})
            config = core_transformer_config_from_args(args)
    except (AssertionError, RuntimeError, ValueError, SystemExit):
        return None
    return {
        "num_layers": args.num_layers,
        "seq_length": args.seq_length,
        "global_batch_size": args.global_batch_size,
        "position_embedding_type": args.position_embedding_type,
        "scaling": scaling_of(args, config),
        "activation": ACTIVATIONS[config.activation_func],
        "gated_linear_unit": config.gated_linear_unit,
        "ffn_hidden_size": config.ffn_hidden_size,
        "kv_channels": config.kv_channels,
        "num_query_groups": config.num_query_groups,
        "add_bias_linear": config.add_bias_linear,
        "sequence_parallel": config.sequence_parallel,
        "tokenizer_type": args.tokenizer_type,
        "apply_wd_to_qk_layernorm": args.apply_wd_to_qk_layernorm,
        "accumulate_allreduce_grads_in_fp32": args.accumulate_allreduce_grads_in_fp32,
        "check_for_nan_in_loss_and_grad": args.check_for_nan_in_loss_and_grad,
        "split": parse_and_normalize_split(args.split) if args.split else None,
    }


def main():
    unique = list(dict.fromkeys(tuple(flags) for flags in cases()))
    lines = [json.dumps({"flags": list(flags), "result": result(list(flags))}) for flags in unique]
    path = Path(__file__).parent / "fixtures" / "legacy_flags.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    refused = sum(bool(re.search(r'"result": null', line)) for line in lines)
    print(f"{path}: {len(lines)} cases, {refused} of them refused")


main()
