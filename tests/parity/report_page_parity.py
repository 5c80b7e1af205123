"""Opens `megatron report` in a real browser.

Charts are drawn, nothing is said on the console, and a million lines take seconds."""
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import program
from report import Report

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
CHARTS = [
    "Loss",
    "Learning rate",
    "Gradient norm",
    "Tokens per second",
    "Memory (GiB)",
    "Step time",
]
EXPERT_CHARTS = [
    "Imbalance of experts over layers (largest load ÷ mean)",
    "Entropy of the routers over layers (nats)",
    "Dropped choices over layers",
    "Load-balancing losses",
    "z-loss of the routers",
]


def browse(page, *flags):
    """The document after its scripts have run, and what the console said."""
    with tempfile.TemporaryDirectory() as profile:
        command = [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--enable-logging=stderr",
            "--virtual-time-budget=3000",
            "--window-size=1400,1900",
            *flags,
            "--dump-dom",
            Path(page).resolve().as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout, console


def drawn_charts(document):
    """Title and SVG of each chart that is shown."""
    figures = re.findall(r"<figure([^>]*)>(.*?)</figure>", document, re.S)
    return {
        re.search(r'aria-label="([^"]*)"', body).group(1): body
        for attributes, body in figures
        if "hidden" not in attributes
    }


def check_page(report, name, page, lines_of_loss, flags=(), runs=1):
    document, console = browse(page, *flags)
    charts = drawn_charts(document)
    report.result(f"{name}: console is silent", not console, "; ".join(console))
    report.result(f"{name}: charts", set(CHARTS) <= set(charts), f"drawn {sorted(charts)}")
    paths = re.findall(r'<path class="line" d="(M[^"]+)"', charts.get("Loss", ""))
    report.result(f"{name}: lines of the loss", len(paths) == lines_of_loss, f"{len(paths)} lines")
    report.result(
        f"{name}: no path has a NaN",
        "NaN" not in "".join(charts.values()) and "Infinity" not in "".join(charts.values()),
    )
    ticks = re.findall(r"<text[^>]*>([^<]+)</text>", charts.get("Loss", ""))
    report.result(
        f"{name}: axes have ticks and a title", len(ticks) >= 6 and "iteration" in ticks, str(ticks)
    )
    bars = charts.get("Step time", "").count('class="bar"')
    report.result(f"{name}: histogram", bars == 60 * runs, f"{bars} bars")
    return document


def real_run(folder):
    flags = [
        "--num-layers",
        2,
        "--hidden-size",
        64,
        "--num-attention-heads",
        4,
        "--seq-length",
        32,
        "--micro-batch-size",
        2,
        "--global-batch-size",
        4,
        "--lr",
        1e-3,
        "--tokenizer-type",
        "NullTokenizer",
        "--vocab-size",
        128,
        "--mock-data",
        "--eval-iters",
        1,
        "--eval-interval",
        10,
        "--log-throughput",
        "--train-iters",
        60,
        "--save",
        folder,
    ]
    program.run("pretrain", "gpt", *flags)


def log_line(iteration, **more):
    """A line of metrics.jsonl, with `more` fields at its end."""
    return json.dumps(
        {
            "iteration": iteration,
            "lm loss": 3 - iteration / 100,
            "learning_rate": 1e-3,
            "grad_norm": 1.0,
            "tokens_per_second": 1e4 + iteration,
            "memory_bytes": 1e9 + iteration,
            "elapsed_ms": 10 + iteration % 7,
            **more,
        }
    )


def broken_log(path):
    """Writes NaN as null and as NaN, garbage and a torn end.
    It leaves out fields, and writes a text where a number belongs."""
    lines = [log_line(i) for i in range(1, 101)]
    lines[10] = '{"iteration": 11, "lm loss": NaN, "grad_norm": Infinity}'
    lines[20] = '{"iteration": 21, "lm loss": null}'
    lines[30] = "\x00\x01 garbage </script><script>console.error('broken out')</script>"
    lines[40] = '{"iteration": 41, "lm loss": "three", "grad_norm": [1]}'
    lines[50] = '{"iteration": 51, "unknown </script> key": 5, "lm loss": 1e308}'
    path.mkdir()
    (path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"iteration": 101, "lm lo')


def expert_log(path, experts=64, layers=48, with_loads=True):
    """Writes the routing of one step. The load of expert e in layer l is (e + l) mod 4,
    whose mean is 1.5: a quarter of the cells is 0, and the others are 2/3, 4/3 and 2 times it."""
    routing = {
        "layers": list(range(layers)),
        "imbalance": [2.0] * layers,
        "entropy": [1.0] * layers,
        "dropped": [3] * layers,
    }
    if with_loads:
        routing["load"] = [[(e + l) % 4 for e in range(experts)] for l in range(layers)]
    lines = [
        log_line(i, load_balancing_loss=1 + 1 / i, z_loss=9.0, routing=routing)
        for i in range(1, 11)
    ]
    path.mkdir()
    (path / "metrics.jsonl").write_text("\n".join(lines))


def check_experts(report, folder):
    expert_log(folder / "experts")
    program.run("report", folder / "experts")
    page = folder / "experts" / "report.html"
    document = check_page(report, "experts", page, 1)
    charts = drawn_charts(document)
    report.result("experts: curves", set(EXPERT_CHARTS) <= set(charts), f"drawn {sorted(charts)}")
    heat_map = charts.get("Load of experts in iteration 10", "")
    cells = re.findall(
        r'<rect class="cell"[^>]*style="fill: ([^;]*); fill-opacity: ([^;]*);', heat_map
    )
    counts = {cell: cells.count(cell) for cell in sorted(set(cells))}
    strength = [math.log(ratio) / math.log(4) for ratio in (3 / 2, 4 / 3, 2)]
    expected = {
        ("var(--c0)", f"{strength[0]:.3f}".rstrip("0")): 768,
        ("var(--c7)", f"{strength[1]:.3f}".rstrip("0")): 768,
        ("var(--c7)", f"{strength[2]:.3f}".rstrip("0")): 768,
        ("var(--text)", "1"): 768,
    }
    report.result("experts: colours of 64 × 48 cells", counts == expected, f"{counts}")
    expert_log(folder / "plain", with_loads=False)
    program.run("report", folder / "plain")
    document = check_page(report, "experts without loads", folder / "plain" / "report.html", 1)
    report.result(
        "experts without loads: the flag is named",
        "needs a run with --moe-per-layer-logging" in document.split("<script")[0]
        and "Load of experts" not in drawn_charts(document),
    )


def huge_log(path):
    path.mkdir()
    noise = random.Random(1)
    with open(path / "metrics.jsonl", "w") as file:
        for i in range(1, 1_000_001):
            file.write(
                f'{{"iteration": {i}, "consumed_train_samples": {i * 8}, '
                f'"lm loss": {2 + 8 * math.exp(-i / 5e4) + noise.random() / 10:.6f}, '
                f'"learning_rate": 0.0003, "grad_norm": {0.5 + noise.random():.6f}, '
                f'"skipped": false, "elapsed_ms": {100 + noise.random():.4f}, '
                f'"tokens_per_second": 81920.5, "memory_bytes": 123456789}}\n'
            )


def main():
    report = Report()
    if not CHROMIUM:
        report.result(
            "a browser",
            False,
            "chromium is not installed: apt-get install chromium, or name one in CHROMIUM",
        )
        return report.finish()
    with tempfile.TemporaryDirectory() as name, report.guard("report"):
        folder = Path(name)
        real_run(folder / "run")
        program.run("report", folder / "run")
        document = check_page(report, "a run", folder / "run" / "report.html", 3)
        report.result(
            "a run: summary",
            "2 layers × 64 hidden × 4 heads" in document and "60 of 60" in document,
        )
        check_page(
            report,
            "in the dark",
            folder / "run" / "report.html",
            3,
            ["--blink-settings=preferredColorScheme=0"],
        )
        broken_log(folder / "broken")
        said = program.run("report", folder / "broken").stderr
        report.result("broken lines are counted", "2 of 101 lines" in said, said.strip())
        check_page(report, "a broken log", folder / "broken" / "report.html", 1)
        check_experts(report, folder)
        huge_log(folder / "huge")
        start = time.monotonic()
        program.run("report", folder / "huge", folder / "run", "--output", folder / "both.html")
        seconds, size = time.monotonic() - start, (folder / "both.html").stat().st_size
        report.result(
            "a million lines take seconds",
            seconds < 15 and size < 3e6,
            f"{seconds:.1f} s, {size / 1e6:.1f} MB",
        )
        check_page(report, "two runs", folder / "both.html", 4, runs=2)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
