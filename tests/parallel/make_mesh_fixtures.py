"""Writes fixtures/mesh_groups.txt: the groups that megatron-core's RankGenerator makes for every order and many shapes, dense and expert.

Run with tests/parity's environment. One world a line: `order tp cp ep etp pp world`, then `axis=` and the first eight digits of the MD5 of all
groups in megatron-core's order, written 0,1;2,3.
A world that megatron-core refuses has `refused` in place of the groups.
"""

import hashlib
import itertools
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "parity"))
import mcore_cpu  # noqa: E402  megatron-core without a CUDA device

mcore_cpu.init()

from megatron.core.parallel_state import RankGenerator  # noqa: E402

DENSE = ["tp", "cp", "dp", "pp", "dp-cp", "tp-cp", "tp-dp", "tp-pp", "tp-dp-cp"]
EXPERT = {"ep": "ep", "etp": "tp", "edp": "dp", "tp-ep": "tp-ep", "tp-ep-pp": "tp-ep-pp"}
DEGREES = [1, 1, 2, 2, 3, 4, 6]


def checksum(groups):
    return hashlib.md5(";".join(",".join(map(str, group)) for group in groups).encode()).hexdigest()[:8]


def generators(order, tp, cp, ep, etp, pp, world):
    """What initialize_model_parallel builds and checks, in its words."""
    dense = RankGenerator(tp=tp, ep=1, dp=world // (tp * cp * pp), pp=pp, cp=cp, order=order)
    expert = RankGenerator(tp=etp, ep=ep, dp=world // (etp * ep * pp), pp=pp, cp=1, order=order)
    if dense.get_ranks("pp") != expert.get_ranks("pp"):
        raise RuntimeError("pipeline groups differ")
    return dense, expert


def line(order, tp, cp, ep, etp, pp, world):
    head = f"{order} {tp} {cp} {ep} {etp} {pp} {world}"
    try:
        dense, expert = generators(order, tp, cp, ep, etp, pp, world)
    except RuntimeError:
        return f"{head} refused"
    sums = [f"{axis}={checksum(dense.get_ranks(axis))}" for axis in DENSE]
    sums += [f"{axis}={checksum(expert.get_ranks(token))}" for axis, token in EXPERT.items()]
    return f"{head} {' '.join(sums)}"


def orders():
    """Every permutation, and those that leave axes out."""
    axes = ["tp", "cp", "ep", "dp", "pp"]
    yield from ("-".join(order) for length in (5, 4, 3) for order in itertools.permutations(axes, length))


def main():
    draw = random.Random(20260101)
    lines = []
    for order in orders():
        for _ in range(4 if order.count("-") == 4 else 1):
            named = order.split("-")
            size = {axis: draw.choice(DEGREES) if axis in named else 1 for axis in ("tp", "cp", "ep", "pp")}
            etp = draw.choice([size["tp"], size["tp"], 1])
            if "tp" not in named:
                etp = 1
            dense, expert = size["tp"] * size["cp"] * size["pp"], etp * size["ep"] * size["pp"]
            world = next(n for n in range(dense * draw.choice([1, 2, 4]), 10**6, dense) if n % expert == 0)
            lines.append(line(order, size["tp"], size["cp"], size["ep"], etp, size["pp"], world))
    path = Path(__file__).parent / "fixtures" / "mesh_groups.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} worlds, {sum('refused' in text for text in lines)} refused: {path}")


if __name__ == "__main__":
    main()
