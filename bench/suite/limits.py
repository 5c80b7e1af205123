"""Measures what the machine allows a case.

The limits are the case's GEMMs and nothing else, each by the faster of our backend and the
library's, and the memory traffic that an AdamW update cannot avoid. For blocks of experts it also
measures what our parts of the block cost."""
import json
import subprocess

import commands
import inputs

BEST = "GEMMs only, best"
TORCH = "GEMMs only, torch.mm"
PEAK = "arithmetic at its peak"
NAMES = (BEST, TORCH, PEAK)
ROUTING = "megatron, no experts"


def gemm_bench(shapes, dtype, details):
    """Runs gemm_bench and returns the lines about GEMMs.
    It leaves the machine's limits in `details`."""
    command = [
        commands.our_program("gemm_bench"),
        "--dtype",
        commands.GEMM_DTYPES[dtype],
        "--turns",
        "5",
        *shapes,
    ]
    lines = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    for limit, key in (("peak", "flops_per_second"), ("memory", "bytes_per_second")):
        name = f"{limit}_{key}"
        details[name] = max(
            [details.get(name, 0)] + [row[key] for row in rows if row.get("limit") == limit]
        )
    return [row for row in rows if "gemm" in row]


def as_turn(milliseconds):
    """Shaped like turns.watch's answer."""
    return {"steps_ms": [milliseconds], "losses": [None], "first_step_s": 0.0, "peak_bytes": None}


def of_gemms(case, dtype, details):
    """Returns the time of the case's GEMMs, each by the faster backend."""
    shapes = {f"{rows},{inner},{out}": count for rows, out, inner, count in case.gemms()}
    rows = gemm_bench(shapes, dtype, details)
    details["gemms"] = [
        row | {"count": shapes[f"{row['tokens']},{row['in']},{row['out']}"]} for row in rows
    ]
    return as_turn(
        1e3
        * sum(
            row["count"] * min(row["own_seconds"], row["library_seconds"])
            for row in details["gemms"]
        )
    )


def of_routing(case, dtype, details, work):
    """Returns the time of our block without its experts: router, dispatch and combine.
    It leaves the parts of the block, and the grouped GEMM's time against a dense one's, in
    `details`."""
    command = [commands.our_program("moe_block_bench"), inputs.experts_file(work, case), dtype]
    line = subprocess.run(
        [*command, "9", "--parts"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    parts = json.loads(line)
    details.setdefault("parts", []).append(parts)
    details.setdefault("grouped_gemms", []).extend(
        gemm_bench([case.grouped_gemm()], dtype, details)
    )
    return as_turn(parts["block_ms"] - parts["experts_ms"])


def of_attention(case, dtype, details):
    """The operations of attention at the rate of the arithmetic units."""
    gemm_bench(["64,64,64"], dtype, details)
    return as_turn(1e3 * case.flop() / details["peak_flops_per_second"])


def runs(case, dtype, details, work):
    """{name: function that runs one turn} of the limits that our own programs measure."""
    if (
        case.device != "cpu"
        or not commands.our_program("gemm_bench").exists()
        or case.kind == "start"
    ):
        return {}
    if case.kind == "attention":
        return {PEAK: lambda: of_attention(case, dtype, details)}
    found = {BEST: lambda: of_gemms(case, dtype, details)}
    if case.kind == "experts":
        found[ROUTING] = lambda: of_routing(case, dtype, details, work)
    return found


def memory_floor_ms(case, dtype, details):
    """Returns how long an AdamW update needs at the measured bandwidth.
    The update reads parameter, gradient and two moments and writes all but the gradient, 4 bytes
    each, and it writes the 16-bit copy."""
    if case.kind != "step" or "memory_bytes_per_second" not in details:
        return None
    return (
        case.parameters()
        * (30 if dtype == "bf16" else 28)
        / details["memory_bytes_per_second"]
        * 1e3
    )


def least_ms(entry):
    """Returns the time of a step that is nothing but the measured GEMMs and AdamW's pass.
    The pass over memory counts where the step updates weights. Where no GEMMs were measured,
    the function returns nothing."""
    bound = entry["gemm_bound_ms"]
    return bound and bound + (entry["memory_floor_ms"] or 0)


def gflop(case):
    """10⁹ operations of the case's GEMMs, forward and backward."""
    if case.kind == "attention":
        return case.flop() / 1e9
    return sum(6 * rows * out * inner * count for rows, out, inner, count in case.gemms()) / 1e9
