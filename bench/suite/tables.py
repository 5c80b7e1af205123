"""What people read: a table per case, and what to be wary of."""
SPREAD_WARNING = 0.10


def case_lines(entry):
    """A case of the results as lines of text."""
    bound = entry.get("gemm_bound_ms")
    rows = entry["contenders"]
    ours = rows["megatron"]["median_ms"] if "megatron" in rows else None
    lines = [f"\n{entry['title']}, {entry['dtype']}",
             f"  {'':22}{'median ms':>11}{'min':>9}{'max':>9}{'spread':>8}{'tokens/s':>10}{'of GEMM bound':>15}{'ours faster':>13}{'loss differs':>14}"]
    for name, row in rows.items():
        share = f"{100 * bound / row['median_ms']:.0f} %" if bound and not name.startswith("GEMM") else ""
        ratio = f"{row['median_ms'] / ours:.2f} ×" if ours and name != "megatron" and not name.startswith("GEMM") else ""
        differs = entry["loss_difference"].get(name)
        lines.append(f"  {name:22}{row['median_ms']:11.1f}{row['min_ms']:9.1f}{row['max_ms']:9.1f}{100 * row['spread']:6.0f} %"
                     f"{entry['tokens'] / row['median_ms'] * 1e3:10.0f}{share:>15}{ratio:>13}" + (f"{differs:14.1e}" if differs is not None else ""))
    return lines + warnings(entry)


def warnings(entry):
    noisy = [f"{name} {100 * row['spread']:.0f} %" for name, row in entry["contenders"].items() if row["spread"] > SPREAD_WARNING]
    return [f"  !! noisy: quartiles far apart ({', '.join(noisy)}); is the machine idle?"] if noisy else []
