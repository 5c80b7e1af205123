"""Times the inference engine beside llama.cpp, vLLM's CPU build and transformers on one model.

The model is a random Llama of 0.5B in bfloat16. Contenders take turns, each in a fresh process. The
log-probabilities of their first tokens must agree. Peers that are not installed are left out;
`--install llama.cpp` compiles that one into the cache folder of this user."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "suite"))
import commands  # noqa: E402
import figures  # noqa: E402
import inputs  # noqa: E402
import machine  # noqa: E402
import measure  # noqa: E402
import model  # noqa: E402
import peers  # noqa: E402
import tables  # noqa: E402
import turns  # noqa: E402

TOLERANCE = 1e-2  # relative, of the first token's log-probability in bfloat16
REQUESTS = 32


@dataclass(frozen=True)
class Case:
    """What inference_bench.cpp and turn.py are told (`start` is a run of the program), and how many
    steps of a turn are counted."""

    kind: str
    prompt: int
    new_tokens: int
    requests: int
    steps: int
    warm: int = 1  # steps before the counted ones
    has_peers: bool = True
    caches: tuple = ()  # other values of --kv-cache-dtype, each a contender


CASES = {
    "prefill_1024": Case("first", 1024, 1, 1, steps=3),
    "decode_1": Case("token", 128, 1, 1, steps=32),
    "decode_32": Case("token", 128, 1, REQUESTS, steps=16),
    "decode_8_4096": Case(
        "token", 4096, 1, 8, steps=16, has_peers=False, caches=("int8", "fp8_e4m3")
    ),
    "verify_1": Case("verify", 128, 1, 1, steps=16, has_peers=False),
    "generate_1": Case("whole", 128, 64, 1, steps=1, warm=0),
    "generate_32": Case("whole", 128, 64, REQUESTS, steps=1, warm=0),
    "miss_2049": Case("first", 2049, 1, 1, steps=3, has_peers=False),
    "hit_2049": Case("hit", 2049, 1, 1, steps=5, has_peers=False),
    "start": Case("start", 16, 1, 1, steps=1, warm=0),
}
SMOKE_CASES = {
    "prefill_1024": Case("first", 40, 1, 1, steps=2),
    "decode_1": Case("token", 8, 1, 1, steps=3),
    "decode_32": Case("token", 130, 1, 3, steps=3),
    "decode_8_4096": Case("token", 130, 1, 2, steps=2, has_peers=False, caches=("int8",)),
    "verify_1": Case("verify", 8, 1, 1, steps=2, has_peers=False),
    "generate_1": Case("whole", 8, 5, 1, steps=1, warm=0),
    "generate_32": Case("whole", 130, 5, 3, steps=1, warm=0),
    "miss_2049": Case("first", 257, 1, 1, steps=2, has_peers=False),
    "hit_2049": Case("hit", 257, 1, 1, steps=2, has_peers=False),
    "start": Case("start", 16, 1, 1, steps=1, warm=0),
}


def turn_command(contender, python, case, folder):
    kind = "first" if case.kind == "start" else case.kind
    numbers = [case.steps + case.warm, case.prompt, case.new_tokens, case.requests]
    if python:
        words = [python, HERE / "turn.py", folder, contender, kind, *numbers]
    else:
        cache = [contender] if contender in case.caches else []
        words = [commands.our_program("inference_bench"), folder, kind, *numbers, *cache]
    return [str(word) for word in words]


def start_of_program(case, folder, vocab_size):
    """Runs `megatron generate` for one token, and returns the time as a step's."""
    prompt = " ".join(str((1 + 7919 * i) % vocab_size) for i in range(case.prompt))
    command = [inputs.MEGATRON, "generate", "--load", folder, "--prompt", prompt]
    command += ["--tokenizer-type", "NullTokenizer", "--vocab-size", vocab_size, "--ignore-eos"]
    command += ["--max-new-tokens", 1, "--temperature", 0, "--json"]
    begin = time.monotonic()
    with subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        line = process.stdout.readline()
        seconds = time.monotonic() - begin
        errors = process.stderr.read()
    if process.returncode != 0 or not line.startswith("{"):
        raise SystemExit(f"megatron generate failed:\n{line}{errors}")
    return {
        "steps_ms": [seconds * 1e3],
        "losses": [None],
        "first_step_s": seconds,
        "peak_bytes": None,
    }


def runs_of(name, case, pythons, folder, sizes, work):
    """The contenders of a case, {name: Run}."""
    runs = {}
    ours = dict.fromkeys(("megatron", *case.caches))
    for contender, python in {**ours, **(pythons if case.has_peers else {})}.items():
        if case.kind == "start" and contender == "megatron":
            watch = partial(start_of_program, case, folder, sizes["vocab_size"])
        else:
            turn = commands.Turn(turn_command(contender, python, case, folder))
            if case.kind == "start":
                watch = partial(turns.start_seconds, turn, contender, work)
            else:
                steps = case.steps + case.warm
                watch = partial(turns.watch, turn, steps, case.warm, contender, work)
        runs[contender] = measure.Run(contender, watch, name)
    return runs


def check_losses(name, found):
    """Ends the run if a contender computes something else than the last one does."""
    losses = {contender: seen["losses"][0] for contender, seen in found.items() if seen["losses"]}
    expected = list(losses.values())[-1] if losses else 0
    for contender, loss in losses.items():
        if not abs(loss / expected - 1) <= TOLERANCE:
            raise SystemExit(f"{name}: {contender} has a loss of {loss}, not {expected}")


def print_times(cases):
    print("\n" + tables.contender_head("case"))
    for name, found in cases.items():
        print(*tables.contender_lines(name, found), sep="\n")


def prepare(folder, sizes, pythons):
    """Writes the model, in a process of its own so that its memory is free in the turns."""
    code = f"import model, pathlib; model.write(pathlib.Path({str(folder)!r}), {sizes!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=HERE)
    if "llama.cpp" in pythons and not (folder / "model.gguf").exists():
        subprocess.run([pythons["llama.cpp"], HERE / "turn.py", folder, "gguf"], check=True)


def measure_all(options, work):
    sizes, all_cases = (model.SMALL, SMOKE_CASES) if options.smoke else (model.SIZES, CASES)
    cases = {name: case for name, case in all_cases.items() if options.only in name}
    pythons = peers.installed(options.peers)
    folder = (options.model or work / "model").absolute()
    prepare(folder, sizes, pythons)
    prompt = all_cases["prefill_1024"].prompt
    limits = None if options.smoke else figures.gemm_limits(sizes, prompt)
    runs = {
        name: runs_of(name, case, pythons, folder, sizes, work) for name, case in cases.items()
    }
    rounds = 1 if options.smoke else options.rounds
    progress = measure.Progress([run for each in runs.values() for run in each.values()] * rounds)
    found = {}
    for name, each in runs.items():
        found[name] = measure.measure(each, rounds, progress)
        check_losses(name, found[name])
    if limits:
        limits = figures.better(limits, figures.gemm_limits(sizes, prompt))
    schedules = figures.schedule(REQUESTS, 50 if options.smoke else 4000)
    rows = figures.Figures(found)
    if limits:
        decode = all_cases["decode_1"]
        figures.of_limits(rows, limits, sizes, decode.prompt + decode.steps // 2)
    figures.against_peers(rows)
    figures.of_batches(rows, all_cases["generate_32"].requests)
    figures.of_decoding(rows)
    figures.of_engine(rows, schedules)
    print_times(found)
    figures.print_table(rows.rows)
    return {
        "machine": machine.describe(),
        "model": sizes,
        "definitions": {name: asdict(case) for name, case in cases.items()},
        "limits": limits,
        "schedules": schedules,
        "cases": found,
        "figures": rows.rows,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of a case's name: prefill, decode, _32")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--peers", nargs="*", default=list(peers.NAMES), choices=peers.NAMES)
    parser.add_argument("--model", type=Path, help="a folder that keeps the model (2 GB)")
    parser.add_argument("--output", help="a file for all results, as JSON")
    parser.add_argument("--install", choices=peers.REQUIREMENTS, help="installs a peer, and ends")
    parser.add_argument("--list", action="store_true", help="prints the cases")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: tests this program")
    options = parser.parse_args()
    if options.list:
        print("\n".join(CASES))
        return
    if options.install:
        peers.install(options.install)
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(machine.cores()))
    with tempfile.TemporaryDirectory() as temporary:
        result = measure_all(options, Path(temporary))
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
