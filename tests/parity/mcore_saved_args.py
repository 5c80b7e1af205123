"""Makes the `args` that Megatron-LM's pretrain scripts save: argparse's namespace with each flag.

Defaults are those of Megatron-LM's own parser (tests/config/fixtures/megatron_defaults.json)."""
import argparse
import json
from pathlib import Path

import torch
from megatron.core.transformer.enums import AttnBackend

DEFAULTS = Path(__file__).parents[1] / "config/fixtures/megatron_defaults.json"
# Flags whose attribute is named otherwise and holds the opposite.
OPPOSITES = {"--disable-bias-linear": "add_bias_linear"}


def attribute(flag, default):
    """The name of a flag's attribute. `--no-x`, which is on by default, sets x."""
    name = flag.removeprefix("--").replace("-", "_")
    if flag in OPPOSITES:
        return OPPOSITES[flag]
    negation = next((n for n in ("no_", "disable_") if name.startswith(n)), None)
    return name.removeprefix(negation) if negation and default is True else name


def value_of(words):
    """What a flag's words mean: true, a number, a text, or a list."""
    if not words:
        return True
    value = words[0]
    if isinstance(value, str) and "," in value:
        return tuple(int(part) for part in value.split(","))
    if isinstance(value, str) and "*" in value:  # a pattern of layers, [0]*1+[1]*2
        return [
            int(digit)
            for part in value.split("+")
            for digit in [part[1]] * int(part.split("*")[1])
        ]
    return value if len(words) == 1 else list(words)


def derived(args):
    """What validate_args() of Megatron-LM adds."""
    hidden = args.hidden_size
    if args.ffn_hidden_size is None:
        args.ffn_hidden_size = int(8 * hidden / 3 / 64) * 64 if args.swiglu else 4 * hidden
    if args.kv_channels is None:
        args.kv_channels = hidden // args.num_attention_heads
    if args.num_experts is not None and args.moe_ffn_hidden_size is None:
        args.moe_ffn_hidden_size = args.ffn_hidden_size
    args.encoder_num_layers = args.num_layers
    args.encoder_seq_length = args.seq_length
    args.params_dtype = torch.float32
    args.attention_backend = AttnBackend.auto
    args.rank, args.consumed_valid_samples, args.skipped_train_samples = 0, 0, 0


def namespace(flags, **more):
    """The namespace for a list of flags and words; `more` sets further attributes."""
    args = argparse.Namespace()
    for flag, default in json.loads(DEFAULTS.read_text()).items():
        setattr(args, attribute(flag, default), default)
    places = [i for i, word in enumerate(flags) if str(word).startswith("--")]
    for begin, end in zip(places, [*places[1:], len(flags)]):
        flag = flags[begin]
        name = attribute(flag, True)
        negated = name != flag.removeprefix("--").replace("-", "_")
        setattr(args, name, not negated and value_of(flags[begin + 1 : end]))
    for name, value in more.items():
        setattr(args, name, value)
    derived(args)
    return args
