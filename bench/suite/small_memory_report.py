"""What small_memory.py found: ratios to PyTorch, targets, and a table to read."""
MEBIBYTE = 1 << 20
PEERS = ("PyTorch", "transformers")


def best(runs, key, recomputed):
    """The least that a PyTorch contender needs of `key`, with or without recomputation."""
    return min(
        (
            run[key]
            for name, run in runs.items()
            if name.startswith(PEERS) and name.endswith(", recompute") == recomputed and key in run
        ),
        default=None,
    )


def ratio(a, b):
    return a / b if a and b else None


def target(what, measured, most):
    return {"what": what, "measured": measured, "most": most}


def sharded_targets(runs):
    """Ours against the best of FSDP2's contenders, which is another one in each line."""
    keys = {
        "median_ms": "step time",
        "peak_bytes": "peak memory",
        "model_bytes": "peak memory less the program's",
    }
    return [
        target(
            f"{title}{' with recompute' if recomputed else ''}, over FSDP2's",
            ratio(
                runs["megatron, recompute" if recomputed else "megatron"].get(key),
                best(runs, key, recomputed),
            ),
            1.0,
        )
        for recomputed in (False, True)
        for key, title in keys.items()
    ]


def time_ratios(runs):
    """{name: time over that of the same program without recomputation}."""
    return {
        name: run["median_ms"] / runs[name.split(",")[0]]["median_ms"]
        for name, run in runs.items()
        if "," in name
    }


def recompute_targets(runs):
    ratios = time_ratios(runs)
    theirs = min(value for name, value in ratios.items() if name.startswith(PEERS))
    return [
        target("time of core_attn over none", ratios["megatron, core_attn"], 1.02),
        target("time of full recompute over none", ratios["megatron, recompute"], theirs),
        target(
            "step time with recompute, over PyTorch's",
            ratio(runs["megatron, recompute"]["median_ms"], best(runs, "median_ms", True)),
            1.0,
        ),
        target(
            "peak memory with recompute, over PyTorch's",
            ratio(runs["megatron, recompute"]["peak_bytes"], best(runs, "peak_bytes", True)),
            1.0,
        ),
    ]


def targets_of(part, runs):
    return {"sharded": sharded_targets, "recompute": recompute_targets}[part](runs)


def target_line(row):
    if row["measured"] is None:
        return f"  {row['what']:58} not measured"
    met = "met" if row["measured"] <= row["most"] else "NOT MET"
    return f"  {row['what']:58} {row['measured']:.3f}   wanted ≤ {row['most']:.3f}   {met}"


def mebibytes(run, key):
    return f"{run[key] / MEBIBYTE:.0f}" if key in run else "-"


def lines_of(part, result):
    found, where = result["parts"][part], result["machine"]
    runs, ranks = found["runs"], found["ranks"]
    lines = [
        "",
        f"{part}: {result['case']} in all, {result['dtype']}, {ranks} "
        f"{'ranks' if ranks > 1 else 'rank'}, {where['cpu']}, {where['cores']} cores",
        f"{'':32}{'median s':>9}{'spread':>8}{'x none':>8}{'peak MiB':>10}{'- program':>11}"
        f"{'tensors':>9}{'last loss':>11}",
    ]
    ratios = time_ratios(runs)
    for name, run in runs.items():
        lines.append(
            f"{name:32}{run['median_ms'] / 1e3:9.3f}{run['spread']:8.1%}"
            f"{f'{ratios[name]:.3f}' if name in ratios else '':>8}"
            f"{mebibytes(run, 'peak_bytes'):>10}{mebibytes(run, 'model_bytes'):>11}"
            f"{mebibytes(run, 'tensor_bytes'):>9}{run['losses'][-1]:11.5f}"
        )
    return [*lines, *map(target_line, found["targets"])]
