"""Compares our groups with those that the real megatron-core makes.

It does so in 2,000 worlds of random orders and shapes (another seed: MESH_SEED=N)."""
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import program
from report import Report

ROOT = Path(__file__).resolve().parents[2]
WORLDS = 2000


def make_worlds(file, seed):
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "tests/parallel/make_mesh_fixtures.py",
            file,
            str(seed),
            str(WORLDS),
        ],
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip()


def main():
    report = Report()
    seed = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(10**6)))
    with tempfile.TemporaryDirectory() as work, report.guard(
        f"groups of random worlds, seed {seed}"
    ):
        file = Path(work) / "worlds.txt"
        counts = make_worlds(file, seed)
        done = subprocess.run(
            [program.test_program("parallel_tests"), "--gtest_filter=Mesh.GroupsAreMegatronCores"],
            env={**os.environ, "MEGATRON_MESH_GROUPS": str(file)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        report.result(f"groups of random worlds, seed {seed}", done.returncode == 0, counts)
        if done.returncode != 0:
            print(done.stdout)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
