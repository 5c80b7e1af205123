"""Compares our stages of pipelines with those that the real megatron-core makes.

It does so for 3,000 random sets of flags (another seed: LAYOUT_SEED=N)."""
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import program
from report import Report

ROOT = Path(__file__).resolve().parents[2]
LAYOUTS = 3000


def make_layouts(file, seed):
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "tests/config/make_layout_fixtures.py",
            file,
            str(seed),
            str(LAYOUTS),
        ],
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip().splitlines()[-1]


def main():
    report = Report()
    seed = int(os.environ.get("LAYOUT_SEED", random.SystemRandom().randrange(10**6)))
    with tempfile.TemporaryDirectory() as work, report.guard(
        f"stages of random layouts, seed {seed}"
    ):
        file = Path(work) / "layouts.txt"
        counts = make_layouts(file, seed)
        done = subprocess.run(
            [
                program.test_program("config_tests"),
                "--gtest_filter=PipelineLayout.StagesAreMegatronCores",
            ],
            env={**os.environ, "MEGATRON_PIPELINE_LAYOUTS": str(file)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        report.result(f"stages of random layouts, seed {seed}", done.returncode == 0, counts)
        if done.returncode != 0:
            print(done.stdout)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
