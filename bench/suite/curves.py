"""Compares loss curves.

Contenders that start from the same weights and tokens must have the same losses, step by step, or
their times mean nothing."""
TOLERANCES = {"fp32": 1e-5, "bf16": 1e-2}


def difference(ours, theirs):
    """The largest relative difference over the steps that both have."""
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=False))


def check(rows, dtype):
    """Compares every contender that has losses with the first one that is not ours.
    It returns {name: difference} and the complaints."""
    reference = next(
        (name for name, row in rows.items() if row["losses"] and name != "megatron"), None
    )
    found, complaints = {}, []
    for name, row in rows.items():
        if reference is None or name == reference or not row["losses"]:
            continue
        found[name] = difference(row["losses"], rows[reference]["losses"])
        if not found[name] <= TOLERANCES[dtype]:
            complaints.append(
                f"{name} and {reference} differ by {found[name]:.1e} of the loss, "
                f"allowed {TOLERANCES[dtype]:.0e}:\n"
                f"  {name}: {row['losses']}\n  {reference}: {rows[reference]['losses']}"
            )
    return found, complaints
