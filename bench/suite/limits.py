"""What the machine allows a case: its products and nothing else, each by the faster of our product and the library's, and the memory traffic that an
AdamW update cannot avoid."""
import json
import subprocess

import commands

BEST = "GEMMs only, best"
TORCH = "GEMMs only, torch.mm"


def of_products(case, dtype, details):
    """A turn of gemm_bench on the case's products, shaped like turns.watch's answer; what it printed is left in `details`."""
    shapes = {f"{rows},{inner},{out}": count for rows, out, inner, count in case.products()}
    kind = {"fp32": "f32", "bf16": "bf16"}[dtype]
    program = commands.our_program("gemm_bench")
    done = subprocess.run([program, "--dtype", kind, "--turns", "5", *shapes], check=True, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    details["products"] = [row | {"count": shapes[f"{row['tokens']},{row['in']},{row['out']}"]} for row in rows if "product" in row]
    details["peak_flops_per_second"] = max([details.get("peak_flops_per_second", 0)] + [row["flops_per_second"] for row in rows if row.get("limit") == "peak"])
    details["memory_bytes_per_second"] = max([details.get("memory_bytes_per_second", 0)] + [row["bytes_per_second"] for row in rows if row.get("limit") == "memory"])
    best = sum(row["count"] * min(row["own_seconds"], row["library_seconds"]) for row in details["products"])
    return {"steps_ms": [best * 1e3], "losses": [None], "first_step_s": 0.0, "peak_bytes": None}


def available(case):
    return case.device == "cpu" and commands.our_program("gemm_bench").exists()


def memory_floor_ms(case, dtype, details):
    """Reading parameter, gradient and two moments and writing all but the gradient, 4 bytes each, and the 16-bit copy, at the measured bandwidth."""
    if case.kind != "step" or "memory_bytes_per_second" not in details:
        return None
    return case.parameters() * (30 if dtype == "bf16" else 28) / details["memory_bytes_per_second"] * 1e3


def gflop(case):
    """10⁹ operations of the case's products, forward and backward."""
    return sum(6 * rows * out * inner * count for rows, out, inner, count in case.products()) / 1e9
