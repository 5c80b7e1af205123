"""Times all-reduce by size: our transports against PyTorch's Gloo and memcpy, in one run.

Our ranks are threads or processes (shared memory, Gloo's connections). All of them take turns."""
import argparse
import datetime
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def commands_of(transport: str, ranks: int, bench: str) -> list[list[str]]:
    """One command per process; the first prints the figures."""
    if transport == "torch gloo":
        torchrun = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            str(ranks),
            "--master-port",
            str(free_port()),
        ]
        return [[*torchrun, str(HERE / "torch_gloo.py")]]
    if transport == "memcpy":
        return [[bench, "memcpy"]]
    if transport == "threads":
        return [[bench, "threads", str(ranks)]]
    port = str(free_port())
    return [[bench, transport, str(ranks), str(rank), port] for rank in range(ranks)]


def turn(transport: str, ranks: int, bench: str) -> dict[int, float]:
    """Seconds by size."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    processes = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for command in commands_of(transport, ranks, bench)
    ]
    output = processes[0].communicate(timeout=300)[0]
    if any(process.wait(timeout=60) != 0 for process in processes):
        sys.exit(f"{transport} with {ranks} ranks failed")
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {row["bytes"]: row["seconds"] for row in rows}


def size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def print_table(medians: dict[str, dict[int, float]], ranks: int) -> None:
    names = list(medians)
    print(f"\nall_reduce of float32, {ranks} ranks: milliseconds (GB/s of the tensor)")
    print(f"{'size':>9} " + " ".join(f"{name:>22}" for name in names) + f" {'shared-memory':>14}")
    print(f"{'':>9} " + " ".join(f"{'':>22}" for _ in names) + f" {'over Gloo':>14}")
    for size in medians[names[0]]:
        cells = [
            f"{medians[name][size] * 1e3:11.3f} ({size / medians[name][size] / 1e9:7.2f})"
            for name in names
        ]
        ratio = medians["torch gloo"][size] / medians["shared-memory"][size]
        print(
            f"{size_text(size):>9} "
            + " ".join(f"{cell:>22}" for cell in cells)
            + f" {ratio:13.1f}x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--bench", default=str(ROOT / "build/bin/collectives_bench"))
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/collectives.json")
    options = parser.parse_args()

    transports = ["memcpy", "threads", "shared-memory", "gloo", "torch gloo"]
    result = {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "rounds": options.rounds,
        "real_time_priority": os.sched_getscheduler(0) != os.SCHED_OTHER,
        "turns": [],
    }
    for ranks in options.ranks:
        turns: dict[str, list[dict[int, float]]] = {transport: [] for transport in transports}
        for index in range(options.rounds):
            load = os.getloadavg()[0]
            for transport in transports:
                turns[transport].append(turn(transport, ranks, options.bench))
                result["turns"].append(
                    {
                        "ranks": ranks,
                        "round": index,
                        "transport": transport,
                        "load": load,
                        "seconds": turns[transport][-1],
                    }
                )
        medians = {
            name: {size: statistics.median(t[size] for t in seen) for size in seen[0]}
            for name, seen in turns.items()
        }
        print_table(medians, ranks)
        result[f"median_seconds_{ranks}_ranks"] = medians
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n")


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
