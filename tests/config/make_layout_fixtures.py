"""Writes fixtures/pipeline_layouts.txt: the stages of Megatron Core for many flags.

Run it with the environment of tests/parity. Each line is one case: the flags, a colon, and for each
stage, in the order of the model, its first layer + its number of layers, with E and L for the
embedding and the output. The result is `refused` if Megatron Core refuses the flags, and `loses` if
its ranks together have fewer layers than the model. `make_layout_fixtures.py FILE SEED COUNT`
writes COUNT random cases instead.
"""

import random
import re
import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "parity"))
import mcore_cpu  # noqa: E402  megatron-core without a CUDA device

mcore_cpu.init()

import torch  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.transformer.enums import LayerType  # noqa: E402
from megatron.core.transformer.transformer_block import get_num_layers_to_build  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset  # noqa: E402

# Texts whose repetitions Megatron Core's regular expressions accept by accident: a repetition of a
# repetition, or across a comma, a bracket or the end of a group.
ACCIDENTS = re.compile(
    r"\*[\d,]*\*|\*,|\d,+\d|\(,*[*\d]|\*[,\d]*\(|\d,*\(,*\d|\*,*\)|\),+\*|[EtmL|],+\*|\|,*\*\d+,\d"
)


def stage(config, p, v, index):
    """Returns first layer, layers, embedding and output of a stage in Megatron Core."""
    rank, chunk = index % p, index // p
    layout = config.pipeline_model_parallel_layout
    if layout is None:
        vp_stage = chunk if v > 1 else None
        count, first = get_num_layers_to_build(
            config, vp_stage, rank
        ), get_transformer_layer_offset(config, vp_stage, rank)
        return first, count, index == 0, index == p * v - 1
    kinds = layout.layout[rank][chunk]
    count = layout.get_num_layers_to_build(LayerType.decoder, chunk, rank)
    return (
        layout.get_layer_offset(LayerType.decoder, chunk, rank),
        count,
        LayerType.embedding in kinds,
        LayerType.loss in kinds,
    )


def real_stages(case):
    p = case["pipeline-model-parallel-size"]
    try:
        config = TransformerConfig(
            num_layers=case["num-layers"],
            hidden_size=8,
            num_attention_heads=1,
            pipeline_model_parallel_size=p,
            pipeline_dtype=torch.float32,
            virtual_pipeline_model_parallel_size=case.get("num-virtual-stages-per-pipeline-rank"),
            num_layers_in_first_pipeline_stage=case.get("decoder-first-pipeline-num-layers"),
            num_layers_in_last_pipeline_stage=case.get("decoder-last-pipeline-num-layers"),
            account_for_embedding_in_pipeline_split="account-for-embedding-in-pipeline-split"
            in case,
            account_for_loss_in_pipeline_split="account-for-loss-in-pipeline-split" in case,
            pipeline_model_parallel_layout=case.get("pipeline-model-parallel-layout"),
        )
        v = config.virtual_pipeline_model_parallel_size or 1
        with mock.patch.object(
            parallel_state,
            "get_virtual_pipeline_model_parallel_world_size",
            lambda: v if v > 1 else None,
        ):
            return [stage(config, p, v, index) for index in range(p * v)]
    except (AssertionError, ValueError, ZeroDivisionError):
        return None


def line(case):
    stages = real_stages(case)
    words = [f"--{flag}" if value is True else f"--{flag} {value}" for flag, value in case.items()]
    if stages is None:
        found = ["refused"]
    elif sum(count for _, count, _, _ in stages) != case["num-layers"] or any(
        count < 0 for _, count, _, _ in stages
    ):
        found = ["loses"]
    else:
        found = [
            f"{first}+{count}{'E' * embedding}{'L' * output}"
            for first, count, embedding, output in stages
        ]
    return " ".join([*words, ":", *found])


def random_symbols(draw, layers):
    """Returns a random layout with this many layers."""
    text, left = "E", layers
    while left > 0:
        kind = draw.randrange(5)
        if kind == 0 and left >= 4:
            times = draw.randint(2, left // 2)
            each = draw.randint(1, left // times)
            body = (
                "".join(draw.choice(["t", "t|", "|t", "t,"]) for _ in range(each))
                if draw.random() < 0.7
                else f"|t*{each}"
            )
            text, left = text + f"({body})*{times}", left - times * each
        elif kind == 1 and left >= 2:
            times = draw.randint(1, left)
            text, left = text + f"t*{times}", left - times
        elif kind == 2:
            text += draw.choice(["|", "|", ",", "|*2", "||"])
        else:
            text, left = text + "t", left - 1
    return text + draw.choice(["L", "|L", "L|"])


def random_text(draw, layers):
    text = random_symbols(draw, layers)
    while draw.random() < 0.15:
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice("EtLm|()*23,x") + text[at + draw.randrange(2) :]
    return text


def random_case(draw):
    p = draw.choice([2, 2, 3, 4, 4, 6, 8])
    kind = draw.randrange(6)
    if kind < 2:
        layers = draw.randint(1, 14)
        text = random_text(draw, layers)
        while ACCIDENTS.search(text) or not text:
            text = random_text(draw, layers)
        stages = re.sub(r"\(([^)]+)\)\*(\d+)", lambda m: m[1] * int(m[2]), text.replace(",", ""))
        stages = re.sub(r"(.)\*(\d+)", lambda m: m[1] * int(m[2]), stages).count("|") + 1
        fitting = [n for n in range(2, 9) if stages % n == 0]
        return {
            "num-layers": layers,
            "pipeline-model-parallel-size": draw.choice(fitting or [p]),
            "pipeline-model-parallel-layout": text,
        }
    v = draw.choice([1, 1, 2, 3, 4])
    per_stage = draw.randint(1, 4)
    case = {"num-layers": p * v * per_stage, "pipeline-model-parallel-size": p}
    if v > 1:
        case["num-virtual-stages-per-pipeline-rank"] = v
    if kind == 3:
        for flag in (
            "account-for-embedding-in-pipeline-split",
            "account-for-loss-in-pipeline-split",
        ):
            if draw.random() < 0.7 and case["num-layers"] > 2:
                case[flag] = True
                case["num-layers"] -= 1
    if kind >= 4:
        for flag in ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"):
            if draw.random() < 0.7:
                case[flag] = v * draw.randint(1, 4)
                case["num-layers"] += case[flag] - v * per_stage
    if draw.random() < 0.15:
        case["num-layers"] = max(1, case["num-layers"] + draw.choice([-2, -1, 1, 2]))
    return case


def main():
    target, seed, count = (
        (Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
        if len(sys.argv) == 4
        else (Path(__file__).parent / "fixtures" / "pipeline_layouts.txt", 20260101, 800)
    )
    draw = random.Random(seed)
    lines = [line(random_case(draw)) for _ in range(count)]
    target.write_text("\n".join(lines) + "\n")
    print(
        f"{count} layouts, "
        f"{sum(text.endswith('refused') for text in lines)} refused by megatron-core, "
        f"{sum(text.endswith('loses') for text in lines)} in which it loses layers"
    )


if __name__ == "__main__":
    main()
