"""One turn of one contender: a fresh process, watched from outside. Gives each step's milliseconds and loss, the time to the end of the first step, and the
highest resident memory over the later steps."""
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import cases
import inputs

HERE = Path(__file__).resolve().parent
OUR_STEP = re.compile(r"elapsed time per iteration \(ms\): ([0-9.]+).*\| lm loss: ([-+.0-9Ee]+|nan|inf)")


def our_command(case, dtype, work, steps, ranks=1, **changed):
    """`megatron pretrain`, with more ranks under `megatron launch`; `changed` replaces or adds flags (underscores for hyphens, True for a switch)."""
    flags = {
        "--load": inputs.weights_folder(work, case), "--seq-length": case.seq, "--micro-batch-size": case.batch, "--global-batch-size": case.batch,
        "--tokenizer-type": "NullTokenizer", "--vocab-size": case.model.vocab, "--data-path": inputs.corpus_prefix(work, case), "--split": "1,0,0",
        "--data-cache-path": work / "cache", "--seed": inputs.SEED, "--train-iters": steps, "--hidden-dropout": 0, "--attention-dropout": 0,
        "--optimizer": "adam", "--lr": cases.LEARNING_RATE, "--lr-decay-style": "constant", "--weight-decay": cases.WEIGHT_DECAY,
        "--adam-beta1": cases.BETAS[0], "--adam-beta2": cases.BETAS[1], "--adam-eps": cases.EPSILON, "--clip-grad": cases.CLIP,
        "--eval-iters": 0, "--log-interval": 1, "--device": case.device}
    flags |= {"--bf16": True} if dtype == "bf16" else {}
    flags |= {"--" + name.replace("_", "-"): value for name, value in changed.items()}
    words = [str(word) for name, value in flags.items() for word in ([name] if value is True else [name, value])]
    launcher = ["launch", "--nproc-per-node", str(ranks), "--"] if ranks > 1 else []
    return [inputs.MEGATRON, *launcher, "pretrain", "gpt", *words]


def command_of(contender, case, dtype, work, steps):
    if contender == "megatron":
        return our_command(case, dtype, work, steps)
    return [sys.executable, str(HERE / "torch_turn.py"), case.name, dtype, contender, str(work), str(steps)]


def step_of(line):
    """(milliseconds, loss) of a line that reports a step; nothing for other lines."""
    if line.startswith('{"ms"'):
        row = json.loads(line)
        return row["ms"], row["loss"]
    found = OUR_STEP.search(line)
    return (float(found[1]), float(found[2])) if found else None


def peak_bytes(pid):
    """The highest resident set so far (Linux), or nothing once the process has gone."""
    try:
        return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) << 10
    except (OSError, TypeError):
        return None


def forget_peak(pid):
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        pass


def run(contender, case, dtype, work, steps, warm):
    """Runs `steps` steps of which the first `warm` are not counted; ends the suite with the process's own words if it fails."""
    return watch(command_of(contender, case, dtype, work, steps), steps, warm, f"{contender}, {case.name}, {dtype}", work)


def gemm_bound(case, dtype, work, steps, warm):
    return watch([sys.executable, str(HERE / "gemm_turn.py"), case.name, dtype, str(steps)], steps, warm, f"GEMMs of {case.name}, {dtype}", work)


def watch(command, steps, warm, what, work):
    errors = work / "errors.txt"
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    times, losses, others, peak = [], [], [], None
    begun = time.monotonic()
    with open(errors, "w") as error_file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=error_file, text=True, env=environment)
        for line in process.stdout:
            step = step_of(line)
            if step is None:
                others.append(line)
                continue
            times.append(step[0])
            losses.append(step[1])
            if len(times) == 1:
                first_step_s = time.monotonic() - begun
            if len(times) == warm:
                forget_peak(process.pid)
            peak = peak_bytes(process.pid) or peak
        code = process.wait()
    if code != 0 or len(times) != steps:
        raise SystemExit(f"{what} ended with {code} after {len(times)} of {steps} steps:\n{' '.join(command)}\n{''.join(others)}{errors.read_text()}")
    return {"steps_ms": times[warm:], "losses": losses, "first_step_s": first_step_s, "peak_bytes": peak}
