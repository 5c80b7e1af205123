"""What people read: a table per case, and what to be wary of."""
import limits

SPREAD_WARNING = 0.10
HEAD = (
    f"  {'':22}{'median ms':>11}{'min':>9}{'max':>9}{'spread':>8}{'tokens/s':>10}"
    f"{'of GEMM bound':>15}{'of limits':>11}{'ours faster':>13}{'loss differs':>14}"
)


def percent(part, whole):
    return f"{100 * part / whole:.0f} %" if part else ""


def contender_head(column):
    """The head of a table of contenders, whose first column has this name."""
    return f"| {column} | contender | median | ours faster | spread |\n" + "| --- " * 2 + (
        "| ---: " * 3 + "|"
    )


def contender_lines(name, found):
    """The rows of a case, {contender: what was measured of it}, in a table of contenders."""
    ours = found["megatron"]["median_ms"]
    for contender, seen in found.items():
        faster = "" if contender == "megatron" else f"{seen['median_ms'] / ours:.2f} ×"
        yield (
            f"| {name} | {contender} | {seen['median_ms']:.4g} ms | {faster} "
            f"| {seen['spread'] * 100:.0f} % |"
        )


def row_line(name, row, entry):
    bound, floor = entry["gemm_bound_ms"], entry["memory_floor_ms"]
    ours = entry["contenders"].get("megatron", {}).get("median_ms")
    cells = (
        f"  {name:22}{row['median_ms']:11.1f}{row['min_ms']:9.1f}{row['max_ms']:9.1f}"
        f"{100 * row['spread']:6.0f} %"
    )
    if name in (*limits.NAMES, limits.ROUTING):
        return cells
    ratio = f"{row['median_ms'] / ours:.2f} ×" if ours and name != "megatron" else ""
    differs = entry["loss_difference"].get(name)
    return (
        f"{cells}{entry['tokens'] / row['median_ms'] * 1e3:10.0f}"
        f"{percent(bound, row['median_ms']):>15}"
        f"{percent(floor and limits.least_ms(entry), row['median_ms']):>11}"
        f"{ratio:>13}{'' if differs is None else f'{differs:.1e}':>14}"
    ).rstrip()


def limit_line(entry):
    """Where the limits lie, in the machine's terms."""
    bound, found = entry["gemm_bound_ms"], entry["limits"]
    if not bound:
        return []
    rate = entry["gflop_of_gemms"] / bound  # 10¹² a second
    what = "arithmetic at its peak" if limits.PEAK in entry["contenders"] else "GEMMs alone"
    line = (
        f"  {what}: {entry['gflop_of_gemms']:.0f} GFLOP in {bound:.1f} ms "
        f"= {1e3 * rate:.0f} GFLOP/s"
    )
    if "peak_flops_per_second" in found:
        line += (
            f", {percent(rate * 1e12, found['peak_flops_per_second'])} of the arithmetic units' "
            f"{found['peak_flops_per_second'] / 1e9:.0f}"
        )
    if entry["memory_floor_ms"]:
        line += (
            f"; memory {found['memory_bytes_per_second'] / 1e9:.1f} GB/s: "
            f"AdamW moves its numbers in {entry['memory_floor_ms']:.1f} ms (limits: both)"
        )
    return [line]


def memory_line(entry):
    """Of single processes only."""
    peaks = [
        f"{name} {row['peak_bytes'] / 2**30:.2f}"
        for name, row in entry["contenders"].items()
        if row.get("peak_bytes") and "ranks" not in name and name not in limits.NAMES
    ]
    return (
        [f"  peak resident memory in GiB, weights and all: {', '.join(peaks)}"]
        if peaks and entry["kind"] == "step"
        else []
    )


def warnings(entry):
    noisy = [
        f"{name} {100 * row['spread']:.0f} %"
        for name, row in entry["contenders"].items()
        if row["spread"] > SPREAD_WARNING
    ]
    return (
        [f"  !! noisy: quartiles far apart ({', '.join(noisy)}); is the machine idle?"]
        if noisy
        else []
    )


def case_lines(entry):
    """A case of the results as lines of text."""
    rows = [row_line(name, row, entry) for name, row in entry["contenders"].items()]
    return [
        f"\n{entry['title']}, {entry['dtype']}",
        HEAD,
        *rows,
        *limit_line(entry),
        *memory_line(entry),
        *warnings(entry),
        "",
    ]
