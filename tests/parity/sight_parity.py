"""Reads what a run leaves for others with their own readers.

These are TensorBoard's events (of a run that was stopped, resumed, killed), Prometheus' text and
traces."""
import json
import math
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import program
from report import Report

FLAGS = [
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
    "--lr-decay-iters",
    40,
    "--tokenizer-type",
    "NullTokenizer",
    "--vocab-size",
    128,
    "--mock-data",
    "--eval-iters",
    1,
    "--eval-interval",
    4,
    "--log-interval",
    2,
    "--log-throughput",
    "--log-params-norm",
    "--log-num-zeros-in-grad",
]
BOARD = [
    "--log-timers-to-tensorboard",
    "--timing-log-level",
    2,
    "--log-validation-ppl-to-tensorboard",
    "--log-memory-to-tensorboard",
    "--log-world-size-to-tensorboard",
]
OVER_BOTH = [
    "learning-rate",
    "batch-size",
    "lm loss",
    "loss-scale",
    "world-size",
    "grad-norm",
    "num-zeros",
    "params-norm",
]
OVER_ITERATIONS = ["mem-reserved-bytes", "mem-allocated-bytes", "mem-max-allocated-bytes"]
OVER_INTERVALS = [
    "iteration-time",
    "throughput",
    "forward-backward-time",
    "optimizer-time",
    "forward-compute-time",
    "batch-generator-time",
]
NAMES_IN_METRICS = {
    "learning-rate": "learning_rate",
    "batch-size": "global_batch_size",
    "lm loss": "lm loss",
    "loss-scale": "loss_scale",
    "grad-norm": "grad_norm",
    "num-zeros": "num_zeros",
    "params-norm": "params_norm",
    "mem-reserved-bytes": "memory_bytes",
}


def pretrain(folder, *extra):
    return program.run(
        "pretrain",
        "gpt",
        *FLAGS,
        *BOARD,
        "--tensorboard-dir",
        folder,
        "--save",
        folder / "checkpoints",
        *extra,
    ).stdout


def read(folder):
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    reader.Reload()
    return reader


def steps_of(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "lm loss" in line and "split" not in line], [
        line for line in lines if "split" in line
    ]


def check_charts(report, name, folder, iterations):
    reader, (steps, evaluations) = read(folder), steps_of(folder)
    tags = set(reader.Tags()["scalars"])
    wanted = (
        {tag + suffix for tag in OVER_BOTH for suffix in ("", " vs samples")}
        | set(OVER_ITERATIONS)
        | set(OVER_INTERVALS)
    )
    wanted |= {
        f"lm loss validation{kind}{suffix}"
        for kind in ("", " ppl")
        for suffix in ("", " vs samples")
    }
    report.result(
        f"{name}: tags",
        wanted <= tags,
        f"missing {sorted(wanted - tags)}" if wanted - tags else f"{len(tags)} charts",
    )
    for tag in OVER_BOTH + OVER_ITERATIONS:
        points = reader.Scalars(tag)
        right_x = [point.step for point in points] == list(range(1, iterations + 1))
        report.result(
            f"{name}: {tag} has each iteration once", right_x, str([point.step for point in points])
        )
        if tag in NAMES_IN_METRICS and right_x:
            report.close(
                f"{name}: {tag} is that of metrics.jsonl",
                [point.value for point in points],
                [step[NAMES_IN_METRICS[tag]] for step in steps],
                1e-6,
            )
    for tag in OVER_BOTH:
        over_samples = [point.step for point in reader.Scalars(tag + " vs samples")]
        report.result(
            f"{name}: {tag} vs samples",
            over_samples == [4 * (i + 1) for i in range(iterations)],
            str(over_samples),
        )
    perplexities = [point.value for point in reader.Scalars("lm loss validation ppl")]
    losses = [line["lm loss"] for line in evaluations if line["split"] == "validation"]
    report.close(f"{name}: validation ppl", perplexities, [math.exp(loss) for loss in losses], 1e-6)
    settings = {tag.removesuffix("/text_summary") for tag in reader.Tags()["tensors"]}
    report.result(
        f"{name}: settings as texts", {"lr", "num_layers"} <= settings, f"{len(settings)} texts"
    )
    text = reader.Tensors("num_layers/text_summary")[0].tensor_proto.string_val[0]
    report.result(f"{name}: a setting's text", text == b"2", str(text))


def straight_and_resumed(report, folder):
    pretrain(folder / "straight", "--train-iters", 8)
    check_charts(report, "one run", folder / "straight", 8)
    resumed = folder / "resumed"
    pretrain(resumed, "--train-iters", 8, "--exit-interval", 6, "--save-interval", 4)
    (resumed / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("4")
    pretrain(resumed, "--train-iters", 8, "--load", resumed / "checkpoints")
    check_charts(report, "stopped at 6, resumed at 4", resumed, 8)


def killed(report, folder):
    """A killed run has every point up to its last closed interval."""
    command = [
        program.MEGATRON,
        "pretrain",
        "gpt",
        *FLAGS,
        "--train-iters",
        100000,
        "--lr-decay-iters",
        40,
        "--tensorboard-dir",
        folder,
        "--eval-iters",
        0,
    ]
    running = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    printed = 0
    deadline = time.monotonic() + 60
    for line in running.stdout:
        if " iteration " in line:
            printed = int(line.split("iteration", 1)[1].split("/")[0])
        if printed >= 10 or time.monotonic() > deadline:
            break
    time.sleep(0.2)
    running.send_signal(signal.SIGKILL)
    running.wait()
    points = [point.step for point in read(folder).Scalars("lm loss")]
    report.result(
        "killed: all but the last interval is there",
        points[:printed] == list(range(1, printed + 1)),
        f"{len(points)} points, {printed} printed",
    )


def families_of(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def check_prometheus(report, name, text, folder):
    families, (steps, evaluations) = families_of(text), steps_of(folder)
    last = steps[-1]
    values = {
        "megatron_training_iteration": last["iteration"],
        "megatron_training_loss": last["lm loss"],
        "megatron_training_learning_rate": last["learning_rate"],
        "megatron_training_grad_norm": last["grad_norm"],
        "megatron_training_tokens_per_second": last["tokens_per_second"],
        "megatron_training_steps": len(steps),
    }
    if evaluations:
        values["megatron_evaluation_loss"] = [
            line["lm loss"] for line in evaluations if line["split"] == "validation"
        ][-1]
    for key, value in values.items():
        samples = (
            [
                sample
                for sample in families[key].samples
                if sample.labels.get("split", "validation") == "validation"
            ]
            if key in families
            else []
        )
        report.result(
            f"{name}: {key}",
            len(samples) == 1 and samples[0].value == value,
            f"{[sample.value for sample in samples]}, metrics.jsonl {value}",
        )
    documented = all(
        family.documentation and family.type in ("gauge", "counter") for family in families.values()
    )
    report.result(
        f"{name}: every family has help and type", documented, f"{len(families)} families"
    )


def prometheus(report, folder):
    file = folder / "megatron.prom"
    pretrain(folder, "--train-iters", 5, "--prometheus-file", file)
    check_prometheus(report, "Prometheus file", file.read_text(), folder)
    report.result(
        "Prometheus file: nothing else is left beside it",
        [path.name for path in folder.glob("*.prom*")] == [file.name],
    )
    port = 19099
    command = [
        program.MEGATRON,
        "pretrain",
        "gpt",
        *FLAGS,
        "--train-iters",
        1000000,
        "--eval-iters",
        0,
        "--prometheus-port",
        port,
    ]
    running = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        while " iteration " not in (running.stdout.readline() or " iteration "):
            pass
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            kind, families = answer.headers["Content-Type"], families_of(answer.read().decode())
        report.result(
            "Prometheus port: content type", kind.startswith("text/plain; version=0.0.4"), kind
        )
        report.result(
            "Prometheus port: live values",
            families["megatron_training_iteration"].samples[0].value >= 1,
        )
        said = program.run(
            "pretrain", "gpt", *FLAGS, "--train-iters", 1, "--prometheus-port", port, expect=2
        ).stderr
        report.result(
            "Prometheus port in use: refused",
            f"--prometheus-port {port}" in said and "another port" in said,
            said.strip().splitlines()[0],
        )
    finally:
        running.kill()
        running.wait()


def profile(report, folder):
    """Checks the trace against Chrome's Trace Event format.
    The FLOPs of its operators are compared with the model's formula."""
    shown = pretrain(
        folder, "--train-iters", 6, "--profile", "--profile-step-start", 3, "--profile-step-end", 5
    )
    trace = json.loads(next((folder / "profile").glob("*.trace.json")).read_text())
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    valid = all(
        {"name", "cat", "pid", "tid", "ts", "dur"} <= event.keys() and event["dur"] >= 0
        for event in complete
    )
    report.result(
        "trace: complete events", valid and len(complete) > 100, f"{len(complete)} events"
    )
    stack, nested = [], True
    for event in sorted(complete, key=lambda event: (event["ts"], -event["dur"])):
        while stack and event["ts"] >= stack[-1] - 1e-3:
            stack.pop()
        nested &= not stack or event["ts"] + event["dur"] <= stack[-1] + 1e-3
        stack.append(event["ts"] + event["dur"])
    report.result("trace: events nest", nested)
    names = {event["name"] for event in complete}
    wanted = {
        "step",
        "forward-compute",
        "backward-compute",
        "optimizer",
        "decoder.layers.0",
        "decoder.layers.1 (backward)",
    }
    wanted |= {
        "aten::mm" if "aten::mm" in names else "matmul"
    }  # the library's, where it was measured to be faster
    report.result(
        "trace: phases, modules and operators",
        wanted <= names,
        f"missing {sorted(wanted - names)}" if wanted - names else "",
    )
    flops = (
        sum(event["args"].get("FLOPs", 0) for event in complete if event["cat"] == "operator") / 2
    )
    layers, hidden, tokens, vocabulary, length = 2, 64, 4 * 32, 128, 32
    gemms = (
        6 * tokens * (layers * 12 * hidden * hidden + hidden * vocabulary)
        + 12 * tokens * length * hidden * layers
    )
    report.result(
        "trace: FLOPs of a step",
        gemms <= flops * 1.001 and flops <= gemms * 1.35,
        f"{flops / 1e6:.2f} MFLOP, by the formula {gemms / 1e6:.2f}",
    )
    report.result(
        "profile: table",
        bool(re.search(r"(matmul|aten::(add)?mm) +[0-9.]+ .*% (compute|memory)", shown))
        and "of roofline" in shown,
    )


def memory(report, folder):
    """The parts add up to what the kernel says of the process (proc(5), VmHWM)."""
    shown = pretrain(folder, "--train-iters", 4, "--log-memory", "--log-memory-interval", 4)
    tables = re.findall(r"memory by part \(MB\):((?:\n    .*)+)", shown)
    peaks = re.findall(r"memory \(MB\) \| resident: [0-9.]+ \| max resident: ([0-9.]+)", shown)
    report.result("memory: after iterations 1, 2 and 4", len(tables) == 3, f"{len(tables)} tables")
    for table, peak in list(zip(tables, peaks, strict=True))[-1:]:
        lines = [re.fullmatch(r"    (\S.*?) \.+: (-?[0-9.]+)", line) for line in table.splitlines()]
        parts = {line[1]: float(line[2]) for line in lines if line}
        whole = parts.pop("sum, the peak of the process")
        report.result(
            "memory: parts add up",
            abs(sum(parts.values()) - whole) < 0.1,
            f"{sum(parts.values()):.2f} of {whole:.2f} MB in {len(parts)} parts",
        )
        report.result(
            "memory: the sum is the peak of the process",
            abs(whole - float(peak)) < 0.1,
            f"{whole:.2f} beside {peak} MB",
        )
        report.result(
            "memory: little is unexplained",
            abs(parts["unexplained"]) < 0.03 * whole,
            f"{parts['unexplained']:.2f} of {whole:.2f} MB",
        )


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        with report.guard("TensorBoard"):
            straight_and_resumed(report, Path(folder))
            killed(report, Path(folder) / "killed")
        for check in (prometheus, profile, memory):
            with report.guard(check.__name__):
                check(report, Path(folder) / check.__name__)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
