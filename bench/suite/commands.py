"""How each contender's turn is started: a command, and what differs in its environment."""
import functools
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import cases
import inputs
import machine

HERE = Path(__file__).resolve().parent
TWO_RANKS = "megatron, 2 ranks"
MOST_COMPILED_EXPERTS = 8  # torch.compile breaks a loop over them wherever rows are chosen
GEMM_DTYPES = {"fp32": "f32", "bf16": "bf16"}  # as our GEMM and attention programs spell them


@dataclass(frozen=True)
class Turn:
    command: list
    environment: dict = field(default_factory=dict)
    endless: bool = False  # continues by itself: is stopped after its steps
    launched: bool = False  # the ranks are children of the process
    folder: Path | None = None


def our_program(name):
    """A program of the suite that is built beside `megatron`."""
    return Path(inputs.MEGATRON).parent / name


def missing_program(case):
    """The program of ours that a case needs and that was not built, or nothing."""
    name = {"experts": "moe_block_bench", "attention": "attention_bench"}.get(case.kind)
    return name if name and not our_program(name).exists() else None


def pretrain(case, dtype, steps, flags, ranks=1):
    """Returns `megatron pretrain gpt` with what all runs of a case have in common, and `flags`.
    `flags` is {flag: value}; True stands for a switch, a list for several values."""
    flags = {
        "--seq-length": case.seq,
        "--micro-batch-size": case.batch // ranks,
        "--global-batch-size": case.batch,
        "--tokenizer-type": "NullTokenizer",
        "--vocab-size": case.model.vocab,
        "--seed": inputs.SEED,
        "--train-iters": steps,
        "--hidden-dropout": 0,
        "--attention-dropout": 0,
        "--optimizer": "adam",
        "--lr": cases.LEARNING_RATE,
        "--lr-decay-style": "constant",
        "--weight-decay": cases.WEIGHT_DECAY,
        "--adam-beta1": cases.BETAS[0],
        "--adam-beta2": cases.BETAS[1],
        "--adam-eps": cases.EPSILON,
        "--clip-grad": cases.CLIP,
        "--eval-iters": 0,
        "--log-interval": 1,
        "--device": case.device,
        **({"--bf16": True} if dtype == "bf16" else {}),
        **flags,
    }
    words = [
        str(word)
        for name, value in flags.items()
        for word in [name, *([] if value is True else value if type(value) is list else [value])]
    ]
    launcher = ["launch", "--nproc-per-node", str(ranks), "--"] if ranks > 1 else []
    return [inputs.MEGATRON, *launcher, "pretrain", "gpt", *words]


def our_step(case, dtype, work, steps, ranks=1, **changed):
    """Returns the command of the step on the shared weights and tokens.
    `changed` replaces or adds flags, with underscores for hyphens."""
    data = {
        "--load": inputs.weights_folder(work, case),
        "--data-path": inputs.corpus_prefix(work, case),
        "--split": "1,0,0",
        "--data-cache-path": work / "cache",
    }
    return pretrain(
        case,
        dtype,
        steps,
        data | {"--" + name.replace("_", "-"): value for name, value in changed.items()},
        ranks,
    )


def our_start(case, dtype):
    """The step on weights of its own and mock data: nothing is read."""
    model = case.model
    return pretrain(
        case,
        dtype,
        1,
        {
            "--num-layers": model.layers,
            "--hidden-size": model.hidden,
            "--num-attention-heads": model.heads,
            "--max-position-embeddings": model.positions,
            "--openai-gelu": True,
            "--mock-data": True,
        },
    )


@functools.cache
def torch_has_grouped_mm():
    import torch  # here: the list of cases needs no package

    found = hasattr(torch.nn.functional, "grouped_mm")
    if not found:
        print("!! PyTorch has no grouped_mm on this device: it is left out", file=sys.stderr)
    return found


def contenders_of(case):
    if case.device == "cuda":
        return ["megatron", "compiled"]
    if case.kind in ("start", "attention"):
        return ["megatron", "eager"]
    names = ["megatron", "eager"]
    if case.experts <= MOST_COMPILED_EXPERTS:
        names += ["compiled"]
    names += ["transformers"]
    if case.kind == "experts":
        names += ["transformers, eager"] + (["grouped_mm"] if torch_has_grouped_mm() else [])
    if case.ranks and machine.cores() % 2 == 0:
        names += [TWO_RANKS]
    return names


def turn_of(contender, case, dtype, work, steps):
    if case.kind == "experts":
        file = str(inputs.experts_file(work, case))
        if contender == "megatron":
            return Turn([str(our_program("moe_block_bench")), file, dtype, str(steps)])
        return Turn(
            [
                sys.executable,
                str(HERE / "moe_turn.py"),
                file,
                dtype,
                contender,
                str(steps),
            ]
        )
    if case.kind == "attention":
        torch_sdpa = [sys.executable, str(inputs.ROOT / "bench/attention/torch_sdpa.py")]
        program = [str(our_program("attention_bench"))] if contender == "megatron" else torch_sdpa
        return Turn([*program, "--dtype", GEMM_DTYPES[dtype], "--turns", str(steps), case.shape()])
    if case.kind == "start":
        torch_turn = [
            sys.executable,
            str(HERE / "torch_turn.py"),
            case.step.name,
            dtype,
            contender,
            "fresh",
            "1",
        ]
        return Turn(our_start(case.step, dtype) if contender == "megatron" else torch_turn)
    if contender == TWO_RANKS:
        threads = {"OMP_NUM_THREADS": str(max(1, int(os.environ["OMP_NUM_THREADS"]) // 2))}
        # Overlap needs a core that computes nothing. The dense case keeps it, to measure what it
        # costs where there is none.
        layout = {"use_distributed_optimizer": True} | (
            {"expert_model_parallel_size": 2, "moe_token_dispatcher_type": "alltoall"}
            if case.experts
            else {"overlap_grad_reduce": True, "overlap_param_gather": True}
        )
        return Turn(
            our_step(case, dtype, work, steps, ranks=2, **layout), threads, launched=True
        )
    if contender == "megatron":
        return Turn(our_step(case, dtype, work, steps))
    return Turn(
        [
            sys.executable,
            str(HERE / "torch_turn.py"),
            case.name,
            dtype,
            contender,
            str(work),
            str(steps),
        ]
    )


def gemm_turn(case, dtype, steps):
    return Turn([sys.executable, str(HERE / "gemm_turn.py"), case.name, dtype, str(steps)])
