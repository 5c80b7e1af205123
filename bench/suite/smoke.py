"""The suite's test of itself: losses that differ must be noticed."""
import cases
import commands
import curves
import turns


def notices_another_learning_rate(result, work, steps):
    """Whether a run of ours with a tenth more learning rate is told from the peer's."""
    case, dtype = cases.SMOKE_CASES[1], "fp32"
    entry = next(
        (
            entry
            for entry in result["cases"]
            if (entry["name"], entry["dtype"]) == (case.name, dtype)
        ),
        None,
    )
    if entry is None or "eager" not in entry["contenders"]:
        return True  # not part of this run
    command = commands.our_step(case, dtype, work, steps, lr=1.1 * cases.LEARNING_RATE)
    losses = turns.watch(commands.Turn(command), steps, 1, "another learning rate", work)["losses"]
    return (
        curves.check(
            {"megatron": {"losses": losses}, "eager": entry["contenders"]["eager"]}, dtype
        )[1]
        != []
    )
