"""Measures context parallelism with the real program: memory of a rank against the planner's
formula, time per token with four ranks against one, and the share of a step that waits for the
ring.

Each case trains a GPT of one layer on mock data. Four ranks of one thread each share every sequence
(cp 4). In turns with them, one rank with four threads does the same work alone (cp 1). CPU time,
which includes the start of the program, says more than time where the machine is not idle.

  bench/run.sh context                131,072 tokens at width 64: about three minutes on two cores
  bench/run.sh context --long         also 1,048,576 tokens at width 32: about a quarter of an hour
  bench/run.sh context --smoke        16,384 tokens: tests this program and measures nothing"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/suite"))
import machine  # noqa: E402
from turns import children, peak_bytes  # noqa: E402

MEGATRON = os.environ.get("MEGATRON", str(ROOT / "build/bin/megatron"))
RANKS = 4
TOLERANCE = 0.05  # of the formula
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Case:
    tokens: int
    width: int
    rounds: int  # turns of cp 4 and cp 1
    alone: bool = True  # whether cp 1 takes turns
    layers: int = 1
    heads: int = 1
    dtype: str = "bf16"

    def title(self):
        return f"{self.tokens:,} tokens, width {self.width}, {self.dtype}"


CASE = Case(tokens=131_072, width=64, rounds=2)
# Alone, a rank would need another quarter of an hour.
LONG_CASE = Case(tokens=1_048_576, width=32, rounds=1, alone=False)
SMOKE_CASE = Case(tokens=16_384, width=32, rounds=1)
BASE_TOKENS = 64  # of a run whose memory is that of the program itself


def flags_of(case, cp, tokens):
    return [
        *["--num-layers", str(case.layers), "--hidden-size", str(case.width)],
        *["--num-attention-heads", str(case.heads), "--position-embedding-type", "rope"],
        *["--seq-length", str(tokens), "--max-position-embeddings", str(tokens)],
        *["--micro-batch-size", "1", "--global-batch-size", "1", "--vocab-size", "64"],
        *["--context-parallel-size", str(cp), *(["--bf16"] if case.dtype == "bf16" else [])],
    ]


def run_command(case, cp, tokens):
    launcher = ["launch", "--nproc-per-node", str(cp), "--"] if cp > 1 else []
    return [
        *[MEGATRON, *launcher, "pretrain", "gpt", *flags_of(case, cp, tokens)],
        *["--tokenizer-type", "NullTokenizer", "--mock-data", "--train-iters", "1"],
        *["--lr", "1e-3", "--eval-iters", "0", "--log-interval", "1", "--log-memory", "--log-comm"],
        *["--hidden-dropout", "0", "--attention-dropout", "0", "--device", "cpu"],
        # Samples prepared ahead would be held whole by every rank.
        *["--num-workers", "0", "--distributed-timeout-minutes", "120"],
    ]


def resident_peaks(pid):
    """{process: highest resident bytes so far} of `pid` and the processes that it started."""
    peaks = {process: peak_bytes(process) for process in [pid, *children(pid)]}
    return {process: peak for process, peak in peaks.items() if peak}


def cpu_seconds():
    """Of all programs that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train(case, cp, tokens):
    """One step in a fresh program. Memory that tensors held and exposed times are rank 0's; the CPU
    time is that of all ranks, with their start."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(RANKS // cp)}
    command, cpu_before = run_command(case, cp, tokens), cpu_seconds()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    os.set_blocking(process.stdout.fileno(), False)
    written, peaks = b"", {}
    while process.poll() is None:
        written += process.stdout.read() or b""
        for rank, peak in resident_peaks(process.pid).items():
            peaks[rank] = max(peak, peaks.get(rank, 0))
        time.sleep(0.05)
    written += process.stdout.read() or b""
    text = written.decode()
    if cp > 1:
        peaks.pop(process.pid, None)  # the launcher
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{text}")
    exposed = re.findall(r"^cp +\S+ +.* ([0-9.]+)$", text, re.M)
    return {
        "step_s": float(re.search(r"iteration \(ms\): ([0-9.]+)", text)[1]) / 1e3,
        "cpu_s": cpu_seconds() - cpu_before,
        "exposed_s": sum(map(float, exposed)) / 1e3,
        "tensor_peak_bytes": MEBIBYTE
        * max(map(float, re.findall(r"tensors at the peak of a step ([0-9.]+)", text))),
        "resident_bytes": sorted(peaks.values()),
    }


def planned_bytes(case):
    """The planner's formula: {part: bytes} of a rank of cp."""
    command = [MEGATRON, "plan", "--world-size", str(RANKS), *flags_of(case, RANKS, case.tokens)]
    command += ["--tensor-model-parallel-size", "1", "--pipeline-model-parallel-size", "1"]
    found = subprocess.run(
        [*command, "--json"], check=True, capture_output=True, text=True
    ).stdout
    return json.loads(found)["layouts"][0]["memory_bytes"]


def measure(case):
    base = train(case, RANKS, BASE_TOKENS)
    base_bytes = statistics.median(base["resident_bytes"]) - base["tensor_peak_bytes"]
    turns = {f"cp {RANKS}": [], **({"cp 1": []} if case.alone else {})}
    for _ in range(case.rounds):
        for name, seen in turns.items():
            seen.append(train(case, int(name.split()[1]), case.tokens))
            print(f"  {name}: {seen[-1]['step_s']:.1f} s", flush=True)
    shared = turns[f"cp {RANKS}"]
    result = {
        "case": asdict(case),
        "formula_bytes": planned_bytes(case),
        "program_bytes": base_bytes,
        "tensor_peak_bytes": max(turn["tensor_peak_bytes"] for turn in shared),
        "resident_bytes": [
            peak - base_bytes for peak in max(turn["resident_bytes"] for turn in shared)
        ],
        "exposed_share": statistics.median(t["exposed_s"] / t["step_s"] for t in shared),
        "turns": turns,
    }
    for name, seen in turns.items():
        seconds = statistics.median(turn["step_s"] for turn in seen)
        result[f"us_per_token_{name.replace(' ', '')}"] = seconds / case.tokens * 1e6
    return result


def lines_of(result):
    """What a case measured, in words."""
    case = Case(**result["case"])
    formula = result["formula_bytes"]["total"] / MEBIBYTE
    tensors = result["tensor_peak_bytes"] / MEBIBYTE
    resident = [peak / MEBIBYTE for peak in result["resident_bytes"]]
    shared = result[f"us_per_token_cp{RANKS}"]
    lines = [
        case.title(),
        f"  formula of a rank          {formula:9.1f} MiB",
        f"  most that its tensors held {tensors:9.1f} MiB  {tensors / formula - 1:+.1%}",
        f"  resident, less the program {min(resident):9.1f} to {max(resident):.1f} MiB  "
        f"{max(resident) / formula - 1:+.1%}",
        f"  time per token, cp {RANKS}       {shared:9.1f} us",
    ]
    for what, key in [("time", "step_s"), ("CPU time", "cpu_s")] if case.alone else []:
        ratios = [
            a[key] / b[key] for a, b in zip(result["turns"][f"cp {RANKS}"], result["turns"]["cp 1"])
        ]
        lines.append(
            f"  {f'{what}, cp {RANKS} over cp 1':27}{statistics.median(ratios):9.2f}      "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )
    return [*lines, f"  waiting for the ring       {result['exposed_share']:9.1%} of a step"]


def is_near_formula(result):
    return abs(result["tensor_peak_bytes"] / result["formula_bytes"]["total"] - 1) <= TOLERANCE


def main():
    parser = argparse.ArgumentParser(
        prog="bench/run.sh context",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--long", action="store_true", help="also 1,048,576 tokens")
    parser.add_argument("--only-long", action="store_true", help="only 1,048,576 tokens")
    parser.add_argument("--smoke", action="store_true", help="16,384 tokens; writes no results")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/context.json")
    options = parser.parse_args()
    cases = [SMOKE_CASE] if options.smoke else [] if options.only_long else [CASE]
    cases += [LONG_CASE] if options.long or options.only_long else []
    record = {"machine": machine.describe(), "ranks": RANKS, "results": []}
    for case in cases:
        record["results"].append(measure(case))
        print("\n".join(lines_of(record["results"][-1])), flush=True)
        if not options.smoke:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(record, indent=1) + "\n")
    far = [result for result in record["results"] if not is_near_formula(result)]
    sys.exit(f"memory is not within {TOLERANCE:.0%} of the formula" if far else 0)


if __name__ == "__main__":
    main()
