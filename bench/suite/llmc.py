"""Runs llm.c's train_gpt2 (CPU, fp32), when its path is given.

It is a contender where it was built with a case's batch and sequence. It takes its weights and
tokens (gpt2_124M.bin and its data) from its own folder, so its losses are not compared."""
import re
import subprocess
from pathlib import Path

import commands

NAME = "llm.c"
PADDED_VOCAB = 50304


def activations(model, batch, seq):
    """Returns how many numbers llm.c allocates for activations, as it prints.
    This number tells batch and sequence, which llm.c does not print."""
    layers, hidden = model.layers, model.hidden
    per_token = (
        hidden * (18 * layers + 2)
        + 4 * layers
        + 2 * layers * model.heads * seq
        + 2
        + 2 * PADDED_VOCAB
        + 1
    )
    return batch * seq * per_token


def printed_activations(program):
    process = subprocess.Popen(
        ["stdbuf", "-oL", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=program.parent,
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found := re.search(r"num_activations: (\d+)", line):
            process.kill()
            process.wait()
            return int(found[1])
    raise SystemExit(f"{program} ended without the line 'num_activations':\n{''.join(lines)}")


def turn_for(path, all_cases):
    """The case that this build of llm.c matches, and its turn."""
    program = Path(path).resolve()
    count = printed_activations(program)
    for case in all_cases:
        if (
            case.kind == "step"
            and case.model.family == "gpt2"
            and activations(case.model, case.batch, case.seq) == count
        ):
            return case, commands.Turn(
                ["stdbuf", "-oL", str(program)], endless=True, folder=program.parent
            )
    raise SystemExit(
        f"{program} was built with a batch and sequence (B and T in train_gpt2.c) "
        f"that no case has: {count} activations"
    )
