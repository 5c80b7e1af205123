"""Times training in little memory against PyTorch, and measures what each rank holds.

All contenders do the same step of a 110M Llama (batch 4 × 512 in all, bf16 with fp32 main weights,
AdamW) from the same weights on the same tokens, and take turns. The parts are:

  sharded     two ranks, half of the threads each: weights, gradients and optimizer are sharded by
              ours and by PyTorch's FSDP2 over Gloo, with and without recomputation of every layer
  recompute   one rank: what recomputation costs in time and saves in memory, in ours and in
              PyTorch's torch.utils.checkpoint

PyTorch's model is the suite's plain one and transformers' LlamaForCausalLM."""
import argparse
import json
import re
import sys
import tempfile
from functools import partial
from pathlib import Path

import cases
import commands
import curves
import inputs
import machine
import measure
import small_memory_report
import turns

HERE = Path(__file__).resolve().parent
CASE, SMOKE_CASE = cases.MEMORY_CASES
SHARDED = {
    "use_megatron_fsdp": True,
    "data_parallel_sharding_strategy": "optim_grads_params",
}
FULL = {"recompute_granularity": "full"}


def selective(*modules):
    return {"recompute_granularity": "selective", "recompute_modules": list(modules)}


OURS = {
    "sharded": {
        "megatron": SHARDED,
        "megatron, recompute": {**SHARDED, **FULL},
    },
    "recompute": {
        "megatron": {},
        "megatron, core_attn": {"recompute_activations": True},
        "megatron, layernorm": selective("layernorm"),
        "megatron, mlp": selective("mlp"),
        "megatron, mlp and layernorm": selective("mlp", "layernorm"),
        "megatron, recompute": FULL,
    },
}
RANKS = {"sharded": 2, "recompute": 1}
PEERS = {"plain": "PyTorch", "transformers": "transformers"}
PROGRAM_STEPS = 20  # of a tiny model, which shows what a program holds without one


def peer_name(part, kind, checkpointed=False):
    name = PEERS[kind] + (" FSDP2" if part == "sharded" else "")
    return name + (", recompute" if checkpointed else "")


def peer_turn(part, case, kind, work, steps, checkpointed):
    ranks = RANKS[part]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    program = [HERE / "memory_turn.py", case.name, kind, work, steps]
    program += ["checkpoint"] if checkpointed else []
    started = [sys.executable, *(torchrun if ranks > 1 else []), *program]
    return commands.Turn(list(map(str, started)), threads(ranks), launched=ranks > 1)


def our_turn(part, case, work, steps, flags):
    ranks = RANKS[part]
    command = commands.our_step(case, "bf16", work, steps, ranks, log_memory=True, **flags)
    return commands.Turn(command, threads(ranks), launched=ranks > 1)


def threads(ranks):
    return {"OMP_NUM_THREADS": str(max(1, machine.cores() // ranks))}


def turns_of(part, case, work, steps, plain_only=False):
    """{name: Turn} of all that take turns."""
    kinds = ["plain"] if plain_only else list(PEERS)
    peers = {
        peer_name(part, kind, checkpointed): peer_turn(part, case, kind, work, steps, checkpointed)
        for kind in kinds
        for checkpointed in (False, True)
    }
    ours = {
        name: our_turn(part, case, work, steps, flags) for name, flags in OURS[part].items()
    }
    return peers | ours


def watch(turn, steps, what, work, seen):
    """One turn; what the program itself says of its memory goes to `seen`."""
    result = turns.watch(turn, steps, 1, what, work)
    text = "".join(result["lines"])
    if found := re.findall(r"tensors at the peak of a step ([0-9.]+)", text):
        seen["tensor_bytes"] = max(map(float, found)) * (1 << 20)
    if found := re.search(r'"before_model_bytes": (\d+)', text):
        seen["before_model_bytes"] = int(found[1])
    return result


def program_bytes(part, work):
    """Returns the peak of a rank with a tiny model, {program: bytes}: libraries differ."""
    inputs.make_inputs(work, SMOKE_CASE, PROGRAM_STEPS)
    started = turns_of(part, SMOKE_CASE, work, PROGRAM_STEPS)
    names = ["megatron", *(peer_name(part, kind) for kind in PEERS)]
    return {
        name: turns.watch(started[name], PROGRAM_STEPS, 1, f"{name}, tiny", work)["peak_bytes"]
        for name in names
    }


def complaints_of(runs):
    """Losses that differ where they may not: recomputation must not change a bit of ours."""
    complaints = curves.check(runs, "bf16")[1]
    wanted = runs.get("megatron", {}).get("losses")
    return complaints + [
        f"{name}: recomputation changed the loss: {run['losses']} and not {wanted}"
        for name, run in runs.items()
        if wanted and name.startswith("megatron") and run["losses"] != wanted
    ]


def measure_part(part, case, options, work):
    steps = options.steps + 1
    seen = {}
    runs = {
        name: measure.Run(
            name, partial(watch, turn, steps, name, work, seen.setdefault(name, {})), part
        )
        for name, turn in turns_of(part, case, work, steps, options.smoke).items()
    }
    base = {} if options.smoke else program_bytes(part, work)
    progress = measure.Progress(run for run in runs.values() for _ in range(options.rounds))
    found = measure.measure(runs, options.rounds, progress)
    for name, run in found.items():
        run |= seen[name]
        # The peak above that of the same program with a tiny model.
        if program := base.get(name.split(",")[0]):
            run["model_bytes"] = run["peak_bytes"] - program
    return {"ranks": RANKS[part], "program_bytes": base, "runs": found}


def parse_options():
    parser = argparse.ArgumentParser(
        prog="bench/run.sh small-memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=RANKS, help="only this part")
    parser.add_argument("--rounds", type=int, help="how often all take turns (3)")
    parser.add_argument("--steps", type=int, help="counted steps per turn (3)")
    parser.add_argument(
        "--smoke", action="store_true", help="a tiny model: tests this program, measures nothing"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=inputs.ROOT / "bench/results/small_memory.json",
        help="default: bench/results/small_memory.json; none with --smoke",
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.smoke else 3)
    options.steps = options.steps or (2 if options.smoke else 3)
    return options


def main():
    options = parse_options()
    case = SMOKE_CASE if options.smoke else CASE
    result = {
        "machine": machine.describe(),
        "settings": {"rounds": options.rounds, "steps": options.steps, "warm": 1},
        "case": case.title(),
        "dtype": "bf16",
        "parts": {},
    }
    complaints = []
    with tempfile.TemporaryDirectory() as folder:
        inputs.make_inputs(Path(folder), case, options.steps + 1)
        for part in [options.only] if options.only else RANKS:
            found = measure_part(part, case, options, Path(folder))
            result["parts"][part] = found
            # Times of a tiny model say nothing.
            found["targets"] = (
                [] if options.smoke else small_memory_report.targets_of(part, found["runs"])
            )
            complaints += complaints_of(found["runs"])
            print("\n".join(small_memory_report.lines_of(part, result)), flush=True)
            if not options.smoke:
                options.output.parent.mkdir(parents=True, exist_ok=True)
                options.output.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit("\n".join(complaints) or 0)


if __name__ == "__main__":
    main()
