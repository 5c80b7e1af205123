#!/usr/bin/env python3
"""Runs each recorded script, made small by scaling.py, and holds the program against expected.json.

A script either trains two steps or is refused with exactly the flags that stand in the table.
`--update` rewrites the table and docs/published-scripts.md.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import data
import report
from flags import HERE, Script, all_scripts
from outcome import Outcome, describe, judge
from scaling import small_flags

ROOT = HERE.parent.parent
EXPECTED = HERE / "expected.json"


class Runner:
    """Runs scripts with the program at `program`; what they read and write is below `folder`."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path, timeout: float):
        self.program = program.resolve()
        self.folder = folder
        self.timeout = timeout
        data.make(self.program, folder)

    def command(self, script: Script, own: pathlib.Path) -> list[str]:
        small, ranks = small_flags(script)
        places = data.places(script, self.folder, own)
        words = []
        for flag, values in data.with_tokenizer(script, small):
            words += [flag, *(places.get(value, value) for value in values)]
        launch = [str(self.program), "launch", "--nproc-per-node", str(ranks), "--"]
        return [*launch, "pretrain", script.family, *words]

    def run(self, script: Script) -> Outcome:
        own = self.folder / "runs" / script.name
        own.mkdir(parents=True)
        try:
            done = subprocess.run(
                self.command(script, own),
                cwd=own,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.timeout,
            )
            stderr = done.stderr.replace(str(self.folder), "...")
            return judge(done.returncode, done.stdout, stderr)
        except subprocess.TimeoutExpired:
            return Outcome("failed", text=f"still running after {self.timeout:g} s")
        finally:
            shutil.rmtree(own, ignore_errors=True)


def print_outcome(
    script: Script, outcome: Outcome, expected, is_wrong: bool, verbose: bool
) -> None:
    now = outcome.recorded()
    print(f"{'FAILED' if is_wrong else 'ok':6} {script.name}: {describe(now)}", flush=True)
    if is_wrong and now != expected:
        print(f"       expected {describe(expected)}")
    if outcome.state == "failed":
        print("       " + outcome.text.strip().replace("\n", "\n       "))
    if verbose:
        for refusal in outcome.refusals:
            print(f"       {refusal.flag}: {refusal.reason}")


def run_all(runner: Runner, scripts: list[Script], arguments) -> tuple[dict[str, Outcome], int]:
    """What became of each script, and how many failed."""
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    outcomes: dict[str, Outcome] = {}
    num_failed = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        tasks = {script.name: pool.submit(runner.run, script) for script in scripts}
        for script in scripts:
            outcome = outcomes[script.name] = tasks[script.name].result()
            is_known = outcome.recorded() == expected.get(script.name)
            is_wrong = outcome.state == "failed" or not (is_known or arguments.update)
            num_failed += is_wrong
            print_outcome(script, outcome, expected.get(script.name), is_wrong, arguments.verbose)
    if not arguments.only and not arguments.update:
        for name in sorted(expected.keys() - outcomes.keys()):
            num_failed += 1
            print(f"FAILED {name}: stands in expected.json, and there is no such .flags file")
    return outcomes, num_failed


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    build = ROOT / os.environ.get("BUILD_DIR", "build")
    parser.add_argument("--program", type=pathlib.Path, default=build / "bin" / "megatron")
    parser.add_argument("--only", default="", metavar="NAME", help="scripts whose name holds NAME")
    parser.add_argument("--jobs", type=int, default=1, help="scripts at a time, two ranks each")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for each script")
    parser.add_argument("--update", action="store_true", help="record what happens now")
    parser.add_argument("--show", action="store_true", help="print the commands and run nothing")
    parser.add_argument("--verbose", action="store_true", help="print the reason of each refusal")
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"{arguments.program} is no program: run `make build`, or give --program")
    if arguments.update and arguments.only:
        parser.error("--update records all scripts: leave --only out")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    start = time.monotonic()
    scripts = [script for script in all_scripts() if arguments.only in script.name]
    if not scripts:
        raise SystemExit(f"no script's name holds '{arguments.only}'")
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(arguments.program, pathlib.Path(folder), arguments.timeout)
        if arguments.show:
            for script in scripts:
                print(" ".join(runner.command(script, pathlib.Path("out"))), end="\n\n")
            return 0
        outcomes, num_failed = run_all(runner, scripts, arguments)
    if arguments.update and not num_failed:
        recorded = {name: outcome.recorded() for name, outcome in outcomes.items()}
        EXPECTED.write_text(json.dumps(recorded, indent=1) + "\n")
        report.write(ROOT / "docs" / "published-scripts.md", scripts, outcomes)
    print(f"published scripts: {time.monotonic() - start:.0f} s")
    print(f"{len(scripts) - num_failed} passed, {num_failed} failed")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
