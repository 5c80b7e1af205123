"""The targets of the CPU training step, against what was measured.

It also prints the most that a peer's time and the measured GEMMs allow."""
import statistics

import limits

AMX = "amx_bf16"


def find(result, name, dtype):
    return next(
        (entry for entry in result["cases"] if entry["name"] == name and entry["dtype"] == dtype),
        None,
    )


def median(entry, name):
    row = entry["contenders"].get(name) if entry else None
    return row["median_ms"] if row else None


def ratio(entry, peer):
    """Returns how many times as fast as the peer ours is, and at most could be.
    It returns nothing where one of the two was not measured."""
    ours, theirs = median(entry, "megatron"), median(entry, peer)
    if ours is None or theirs is None:
        return None
    least = limits.least_ms(entry)
    return theirs / ours, theirs / least if least else None


PEERS = {
    "transformers": "transformers' grouped_mm",
    "transformers, eager": "transformers' loop over experts",
}


def speed(result, name, dtype, peer, wanted):
    found = ratio(find(result, name, dtype), peer)
    text = f"{name} {dtype}: times as fast as {PEERS.get(peer, f'PyTorch {peer}')}"
    return found and {
        "what": text,
        "unit": "×",
        "target": wanted,
        "measured": found[0],
        "possible": found[1],
        "met": found[0] >= wanted,
    }


def of_bound(result, name, dtype, wanted):
    entry = find(result, name, dtype)
    ours = median(entry, "megatron")
    if ours is None or not entry["gemm_bound_ms"]:
        return None
    share, possible = entry["gemm_bound_ms"] / ours, entry["gemm_bound_ms"] / limits.least_ms(entry)
    return {
        "what": f"{name} {dtype}: share of the bound of GEMMs alone",
        "unit": "",
        "target": wanted,
        "measured": share,
        "possible": possible,
        "met": share >= wanted,
    }


def state_bytes(entry, dtype, ours):
    """Parameters, gradients and two moments in fp32, and our 16-bit copy."""
    return entry["parameters"] * (18 if ours and dtype == "bf16" else 16)


def working_memory(result, name, dtype, wanted):
    """What a step needs besides parameters, gradients, optimizer state and the program itself."""
    entry = find(result, name, dtype)
    peaks = (
        [
            entry["contenders"].get(contender, {}).get("peak_bytes")
            for contender in ("megatron", "eager")
        ]
        if entry
        else [None]
    )
    programs = result.get("program_bytes", {})
    if None in peaks or "megatron" not in programs or "eager" not in programs:
        return None
    ours, theirs = (
        peak - state_bytes(entry, dtype, name == "megatron") - programs[name]
        for peak, name in zip(peaks, ("megatron", "eager"), strict=True)
    )
    return {
        "what": (
            f"{name} {dtype}: peak memory beside weights, gradients and optimizer, over eager's"
        ),
        "unit": "×",
        "target": wanted,
        "measured": ours / theirs,
        "possible": None,
        "met": ours <= wanted * theirs,
        "at_most": True,
    }


def start(result, dtype, wanted):
    measured = median(find(result, "start_gpt2_4x256", dtype), "megatron")
    return measured and {
        "what": f"start of pretrain to the end of its first step, {dtype}",
        "unit": " s",
        "target": wanted,
        "measured": measured / 1e3,
        "possible": None,
        "met": measured / 1e3 <= wanted,
        "at_most": True,
    }


def two_ranks(result, name, dtype, wanted):
    entry = find(result, name, dtype)
    one, two = median(entry, "megatron"), median(entry, "megatron, 2 ranks")
    return (
        one
        and two
        and {
            "what": f"{name} {dtype}: two ranks, half of the threads each, over one rank",
            "unit": "×",
            "target": wanted,
            "measured": one / two,
            "possible": None,
            "met": one / two >= wanted,
        }
    )


def routing(result, name, dtype, wanted):
    """The share of router, dispatch and combine in the block of experts: all but the experts."""
    parts = (find(result, name, dtype) or {}).get("limits", {}).get("parts")
    if not parts:
        return None
    share = statistics.median(1 - part["experts_ms"] / part["block_ms"] for part in parts)
    return {
        "what": f"{name} {dtype}: share of the block outside its experts",
        "unit": "",
        "target": wanted,
        "measured": share,
        "possible": None,
        "met": share <= wanted,
        "at_most": True,
    }


def grouped_gemms(result, name, dtype, wanted):
    """Our grouped GEMM against a dense one of the same operations, for each of its three roles."""
    rows = (find(result, name, dtype) or {}).get("limits", {}).get("grouped_gemms", [])
    targets = []
    for role in ("forward", "input_gradient", "weight_gradient"):
        found = [
            row["dense_seconds"] / row["own_seconds"]
            for row in rows
            if row["gemm"] == f"grouped_{role}"
        ]
        if found:
            speed_of_dense = statistics.median(found)
            targets.append(
                {
                    "what": f"{name} {dtype}: grouped GEMM over dense, {role.replace('_', ' ')}",
                    "unit": "×",
                    "target": wanted,
                    "measured": speed_of_dense,
                    "possible": None,
                    "met": speed_of_dense >= wanted,
                }
            )
    return targets


def of(result):
    """Every target of which this run measured the parts."""
    amx = AMX in result["machine"]["instructions"]
    found = [
        speed(result, "gpt2_4x256", "bf16", "eager", 2.2) if amx else None,
        speed(result, "gpt2_4x256", "bf16", "compiled", 1.8 if amx else 1.5),
        of_bound(result, "gpt2_4x256", "bf16", 0.6),
        speed(result, "gpt2_4x256", "fp32", "eager", 1.35),
        speed(result, "gpt2_4x256", "fp32", "compiled", 1.25),
        of_bound(result, "gpt2_4x256", "fp32", 0.8),
        speed(result, "gpt2_4x64", "bf16", "compiled", 2.5),
        *(speed(result, "attention_1x8192", dtype, "eager", 2.0) for dtype in ("bf16", "fp32")),
        *(working_memory(result, "gpt2_4x256", dtype, 0.5) for dtype in ("bf16", "fp32")),
        *(start(result, dtype, 3.0) for dtype in ("bf16", "fp32")),
        *(two_ranks(result, "gpt2_4x256", dtype, 0.9) for dtype in ("bf16", "fp32")),
        speed(result, "experts_64x8", "bf16", "transformers, eager", 3.0),
        speed(result, "experts_64x8", "bf16", "transformers", 1.5),
        speed(result, "experts_64x8", "bf16", "grouped_mm", 1.3),
        routing(result, "experts_64x8", "bf16", 0.08),
        *grouped_gemms(result, "experts_64x8", "bf16", 0.85),
        two_ranks(result, "mixtral_200m_4x256", "bf16", 0.9),
    ]
    return [target for target in found if target]


def lines(result):
    if not result["targets"]:
        return []
    head = f"\nTargets{'':73}{'target':>9}{'measured':>10}{'possible':>10}"
    rows = [head]
    for row in result["targets"]:
        possible = f"{row['possible']:.2f}{row['unit']}" if row["possible"] else ""
        target = f"{'≤' if row.get('at_most') else '≥'} {row['target']}{row['unit']}"
        rows.append(
            f"  {row['what']:78}{target:>9}{row['measured']:9.2f}{row['unit'] or ' '}"
            f"{possible:>10}  {'met' if row['met'] else 'NOT met'}"
        )
    if any(row["possible"] for row in result["targets"]):
        rows.append(
            "  possible: with a step that is nothing but the measured GEMMs "
            "and one AdamW pass over memory"
        )
    return rows
