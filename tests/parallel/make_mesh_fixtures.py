"""Writes fixtures/mesh_groups.txt: every group that megatron-core's initialize_model_parallel
makes, for every order and many shapes.

Run it in the environment of tests/parity. Each line is one world: `order tp cp ep etp pp world
instances`, then `axis=` and the first eight digits of the MD5 of all groups of that axis in
megatron-core's order, written 0,1;2,3. The line of a world that megatron-core refuses ends in
`refused`.
`make_mesh_fixtures.py FILE SEED COUNT` writes COUNT worlds of random orders and larger shapes
instead.
"""

import hashlib
import itertools
import random
import sys
from collections import defaultdict
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "parity"))
import mcore_cpu  # noqa: E402  megatron-core without a CUDA device

mcore_cpu.init()

from megatron.core import parallel_state  # noqa: E402

AXES = ["tp", "cp", "ep", "dp", "pp"]
# Names of the groups in megatron-core and in this project
NAMES = {
    "DATA_PARALLEL_GROUP_WITH_CP": "dp-cp",
    "DATA_PARALLEL_GROUP": "dp",
    "CONTEXT_PARALLEL_GROUP": "cp",
    "MODEL_PARALLEL_GROUP": "tp-pp",
    "TENSOR_MODEL_PARALLEL_GROUP": "tp",
    "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
    "EMBEDDING_GROUP": "embd",
    "POSITION_EMBEDDING_GROUP": "pos_embd",
    "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": "tp-dp-cp",
    "TENSOR_AND_DATA_PARALLEL_GROUP": "tp-dp",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tp-cp",
    "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "tp-ep",
    "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP": "tp-ep-pp",
    "EXPERT_DATA_PARALLEL_GROUP": "edp",
    "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP": "intra-dp-cp",
    "HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L0": "intra-edp",
    "HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L1": "inter-edp",
}


def real_groups(order, tp, cp, ep, etp, pp, world, instances):
    """Returns all groups by name, or None when megatron-core refuses the world."""
    made = defaultdict(list)

    def create_group(ranks=None, group_desc=None, **_):
        made[NAMES.get(group_desc)].append(list(ranks))
        return group_desc

    parallel_state.destroy_model_parallel()
    with (
        mock.patch.object(parallel_state, "create_group", create_group),
        mock.patch("torch.distributed.get_world_size", lambda: world),
        mock.patch("torch.distributed.get_rank", lambda: 0),
    ):
        try:
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=tp,
                context_parallel_size=cp,
                expert_model_parallel_size=ep,
                expert_tensor_parallel_size=etp,
                pipeline_model_parallel_size=pp,
                order=order,
                num_distributed_optimizer_instances=instances,
                create_gloo_process_groups=False,
            )
        except (AssertionError, RuntimeError):
            return None
    made.pop(None, None)
    return made


def checksum(groups):
    text = ";".join(",".join(map(str, group)) for group in groups)
    return hashlib.md5(text.encode()).hexdigest()[:8]


def line(*world):
    groups = real_groups(*world)
    found = (
        ["refused"]
        if groups is None
        else [f"{name}={checksum(groups[name])}" for name in sorted(groups)]
    )
    return " ".join([*map(str, world), *found])


def random_world(draw, order, degrees):
    named = order.split("-")
    size = {axis: draw.choice(degrees) if axis in named else 1 for axis in AXES}
    etp = draw.choice([size["tp"], size["tp"], draw.choice(degrees)]) if "tp" in named else 1
    dense, expert = size["tp"] * size["cp"] * size["pp"], etp * size["ep"] * size["pp"]
    replicas = draw.choice([1, 2, 4, 6]) if "dp" in named else 1
    world = next(n for n in itertools.count(dense * replicas, dense) if n % expert == 0)
    instances = draw.choice([1, 2]) if replicas % 2 == 0 else 1
    return order, size["tp"], size["cp"], size["ep"], etp, size["pp"], world, instances


def systematic_worlds(draw):
    """Every order of all axes, and of those that leave axes out."""
    for length in (5, 4, 3):
        for order in itertools.permutations(AXES, length):
            for _ in range(4 if length == 5 else 1):
                yield random_world(draw, "-".join(order), [1, 1, 2, 2, 3, 4])


def random_worlds(draw, count):
    for _ in range(count):
        order = "-".join(draw.sample(AXES, draw.choice([5, 5, 4])))
        yield random_world(draw, order, [1, 1, 2, 3, 4, 5, 6, 8])


def write(path, worlds):
    lines = [line(*world) for world in worlds]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return len(lines), sum(text.endswith("refused") for text in lines)


def main():
    if len(sys.argv) == 4:
        worlds = random_worlds(random.Random(int(sys.argv[2])), int(sys.argv[3]))
        counts = write(Path(sys.argv[1]), worlds)
    else:
        path = Path(__file__).parent / "fixtures" / "mesh_groups.txt"
        counts = write(path, systematic_worlds(random.Random(20260101)))
    print(f"{counts[0]} worlds, {counts[1]} refused by megatron-core")


if __name__ == "__main__":
    main()
