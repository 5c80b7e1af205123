#!/usr/bin/env python3
"""Plants one-line faults in the sources and checks that the tests notice them.

tests/mutants/<room>.ini lists the faults (mutants) of a room; README.md describes the format.
run.py copies the tracked files into a scratch folder, configures it once, and for each mutant
plants it, builds the test program that it names, runs it and takes the mutant back. A mutant is
killed when the program fails or exceeds its time. The exit status is 1 when fewer than 95 % are
killed and 2 when the list itself is wrong.
"""

import argparse
import configparser
import contextlib
import dataclasses
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import cpp_tokens
from cpp_tokens import Place

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NEEDED_SHARE = 0.95


@dataclasses.dataclass(frozen=True)
class Mutant:
    room: str
    name: str
    where: str  # the function, variable, class or macro that holds `old`
    old: str
    new: str
    program: str
    filter: str

    @property
    def label(self) -> str:
        return f"{self.room}/{self.name}"


def read_room(path: pathlib.Path) -> list[Mutant]:
    """Reads one .ini file. Raises ValueError or configparser.Error when it is malformed."""
    parser = configparser.RawConfigParser(
        delimiters=("=",), comment_prefixes=("#",), empty_lines_in_values=False
    )
    parser.read_string(path.read_text(encoding="utf-8"), source=str(path))
    mutants = []
    for name in parser.sections():
        fields = dict(parser[name])
        if sorted(fields) != ["in", "new", "old", "test"]:
            raise ValueError(f"{path}: [{name}] needs in, old, new and test, has {[*fields]}")
        program, _, tests = fields["test"].partition(" ")
        if not tests:
            raise ValueError(f"{path}: [{name}] names no test of {program}")
        where, old, new = fields["in"], fields["old"], fields["new"]
        mutants.append(Mutant(path.stem, name, where, old, new, program, tests.strip()))
    return mutants


def read_all() -> list[Mutant]:
    return [mutant for path in sorted(HERE.glob("*.ini")) for mutant in read_room(path)]


class Checker:
    """Finds the places of mutants, and mistakes of the lists, without building anything."""

    def __init__(self):
        self.tree = cpp_tokens.Tree(ROOT)
        self.tests: dict[str, list[str]] = {}

    def problem(self, mutant: Mutant, places: dict[Place, str]) -> str | None:
        if len(places) != 1:
            elsewhere = places or self.tree.find("", mutant.old)
            found = sorted({f"{name} ({place.file})" for place, name in elsewhere.items()})
            return (
                f"{mutant.where} has these tokens {len(places)} times, not once: {mutant.old}; "
                f"they are in {', '.join(found[:4]) or 'no file'}{', ...' if found[4:] else ''}"
            )
        if cpp_tokens.tokens_of(mutant.old) == cpp_tokens.tokens_of(mutant.new):
            return "the new tokens are the old ones"
        return self.problem_of_test(mutant)

    def problem_of_test(self, mutant: Mutant) -> str | None:
        names = self.tests_of(mutant.program)
        if not names:
            return f"there is no test program {mutant.program}"
        for pattern in mutant.filter.split(":"):
            # Suite.Test of [Instance/]Suite.Test[/parameter]; without a dot it may match both.
            suite, dot, test = pattern.lstrip("-").partition(".")
            plain = suite.rpartition("/")[2] + dot + test.partition("/")[0]
            if not fnmatch.filter(names, plain):
                return f"{mutant.program} has no test {pattern}"
        return None

    def tests_of(self, program: str) -> list[str]:
        """Returns the names Suite.Test that the sources of a test program define."""
        if program not in self.tests:
            folder = ROOT / "tests" / program.removesuffix("_tests")
            macro = re.compile(r"^TEST\w*\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
            self.tests[program] = [
                ".".join(found)
                for path in folder.glob("*_test.cpp")
                for found in macro.findall(path.read_text(encoding="utf-8"))
            ]
        return self.tests[program]


def locate(mutants: list[Mutant]) -> dict[Mutant, Place] | None:
    """Returns the place of each mutant. Prints what is wrong with the lists, if anything is."""
    if not mutants:
        print("no mutant has that room or name", file=sys.stderr)
        return None
    checker = Checker()
    places = {mutant: checker.tree.find(mutant.where, mutant.old) for mutant in mutants}
    is_right = True
    for mutant in mutants:
        if problem := checker.problem(mutant, places[mutant]):
            print(f"{mutant.label}: {problem}", file=sys.stderr)
            is_right = False
    return {mutant: next(iter(places[mutant])) for mutant in mutants} if is_right else None


class Workplace:
    """A copy of the tracked files, configured and built in `folder`."""

    def __init__(self, folder: pathlib.Path, jobs: int):
        self.folder = folder
        self.build_folder = folder / "build"
        self.jobs = jobs

    def prepare(self) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True
        )
        names = {name for name in listed.stdout.decode().split("\0") if name}
        for name in sorted(names):
            source, target = ROOT / name, self.folder / name
            if not source.is_file():
                continue
            content = source.read_bytes()
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        for folder in ("src", "tests", "cmake"):  # left over from an older copy
            for path in (self.folder / folder).rglob("*"):
                if path.is_file() and str(path.relative_to(self.folder)) not in names:
                    path.unlink()
        torch = os.environ.get("TORCH_DIR", str(ROOT / ".deps" / "torch"))
        # A fault may leave a variable unused, so warnings are not errors here. It changes one
        # source, so that batches would only compile more.
        options = [f"-DTORCH_DIR={torch}", "-DMEGATRON_WERROR=OFF", "-DMEGATRON_UNITY=OFF"]
        self.call(["cmake", "--preset", "release", *options])

    def call(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed in {self.folder}:\n{done.stdout}{done.stderr}")

    def build(self, program: str) -> str | None:
        """Builds a test program. Returns the end of the output if that fails."""
        done = subprocess.run(
            ["cmake", "--build", self.build_folder, "-j", str(self.jobs), "--target", program],
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            return None
        errors = [line for line in done.stdout.splitlines() if "error" in line]
        return "\n".join(errors[:5]) or done.stdout[-2000:]

    def run(self, mutant: Mutant, limit_s: float) -> tuple[str, str]:
        """Runs the mutant's tests. Returns "passed", "failed" or "timeout", and the output."""
        command = [
            self.build_folder / "bin" / mutant.program,
            "--gtest_brief=1",
            "--gtest_fail_fast",
            f"--gtest_filter={mutant.filter}",
        ]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=self.build_folder,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                verdict = "passed" if process.wait(limit_s) == 0 else "failed"
            except subprocess.TimeoutExpired:
                verdict = "timeout"
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)  # also ranks that the test forked
                process.wait()
            output.seek(0)
            return verdict, output.read().decode(errors="replace")


@dataclasses.dataclass
class Result:
    mutant: Mutant
    verdict: str  # killed, survived or error
    detail: str
    seconds: float


class Tester:
    def __init__(self, workplace: Workplace):
        self.workplace = workplace
        self.baselines: dict[tuple[str, str], float | str] = {}

    def baseline(self, mutant: Mutant) -> float | str:
        """Returns the seconds that the tests take without a mutant, or why they cannot be used."""
        key = (mutant.program, mutant.filter)
        if key not in self.baselines:
            self.baselines[key] = self.measure_baseline(mutant)
        return self.baselines[key]

    def measure_baseline(self, mutant: Mutant) -> float | str:
        if problem := self.workplace.build(mutant.program):
            return f"{mutant.program} does not build without a mutant: {problem}"
        start = time.monotonic()
        verdict, output = self.workplace.run(mutant, 1800)
        if verdict != "passed":
            return f"the tests fail without a mutant ({verdict}): {output[-1000:]}"
        ran = re.search(r"\[=+\] (\d+) tests? from", output)
        if ran is None or ran.group(1) == "0":
            return f"the filter {mutant.filter} selects no test"
        return time.monotonic() - start

    def test(self, mutant: Mutant, place: Place) -> Result:
        usual_s = self.baseline(mutant)
        start = time.monotonic()
        if isinstance(usual_s, str):
            return Result(mutant, "error", usual_s, 0)
        path = self.workplace.folder / place.file
        original = path.read_text(encoding="utf-8")
        planted = original[: place.begin] + mutant.new + original[place.end :]
        path.write_text(planted, encoding="utf-8")
        try:
            if problem := self.workplace.build(mutant.program):
                return Result(mutant, "error", f"does not compile: {problem}", 0)
            verdict, _ = self.workplace.run(mutant, 60 + 5 * usual_s)
        finally:
            path.write_text(original, encoding="utf-8")
        seconds = time.monotonic() - start
        if verdict == "passed":
            return Result(mutant, "survived", f"{mutant.program} {mutant.filter}", seconds)
        return Result(mutant, "killed", verdict, seconds)


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def test_all(places: dict[Mutant, Place], workplace: Workplace) -> list[Result]:
    tester = Tester(workplace)
    # Neighbours share what a build of their program has to do.
    ordered = sorted(places, key=lambda mutant: (mutant.room, mutant.program, places[mutant].file))
    results = []
    start = time.monotonic()
    for number, mutant in enumerate(ordered, 1):
        result = tester.test(mutant, places[mutant])
        results.append(result)
        spent = time.monotonic() - start
        left = spent / number * (len(ordered) - number)
        print(
            f"[{number}/{len(ordered)}, {duration(left)} left] {mutant.label}: "
            f"{result.verdict} ({result.detail}), {result.seconds:.0f} s",
            flush=True,
        )
    return results


def report(results: list[Result]) -> int:
    rooms = sorted({result.mutant.room for result in results})
    verdicts = ("killed", "survived", "error")

    def counts(chosen: list[Result]) -> str:
        numbers = [sum(result.verdict == verdict for result in chosen) for verdict in verdicts]
        return "".join(f"{number:10}" for number in (len(chosen), *numbers))

    print(f"\n{'room':14}{'planted':>10}{'killed':>10}{'survived':>10}{'error':>10}")
    for room in rooms:
        print(f"{room:14}" + counts([result for result in results if result.mutant.room == room]))
    print(f"{'all':14}" + counts(results))
    for verdict in ("survived", "error"):
        names = [result.mutant.label for result in results if result.verdict == verdict]
        if names:
            print(f"\n{verdict}: " + ", ".join(names))
    if any(result.verdict == "error" for result in results):
        return 2
    killed = sum(result.verdict == "killed" for result in results)
    print(f"\n{100 * killed / len(results):.1f} % killed, {100 * NEEDED_SHARE:.0f} % needed")
    return 0 if killed >= NEEDED_SHARE * len(results) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--room", action="append", help="test only this room; may be repeated")
    parser.add_argument("--name", action="append", help="test only this mutant; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="parallel compilations")
    parser.add_argument(
        "--keep",
        metavar="FOLDER",
        type=pathlib.Path,
        help="use this scratch folder and keep it, so that the next run builds less",
    )
    parser.add_argument("--list", action="store_true", help="list the mutants and stop")
    parser.add_argument("--check", action="store_true", help="check the lists and stop")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="write the results there")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    # An interrupted run removes its scratch folder, also in the background of a shell.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(130))
    try:
        places = locate(
            [
                mutant
                for mutant in read_all()
                if (not arguments.room or mutant.room in arguments.room)
                and (not arguments.name or mutant.name in arguments.name)
            ]
        )
    except (ValueError, configparser.Error) as error:
        print(error, file=sys.stderr)
        return 2
    if not places:
        return 2
    if arguments.check:
        print(f"{len(places)} mutants can be planted")
        return 0
    if arguments.list:
        for mutant, place in places.items():
            where = f"{mutant.label:44} {place.file}, {mutant.where}"
            print(f"{where}: {mutant.old}  ->  {mutant.new or '(nothing)'}")
        return 0
    with contextlib.ExitStack() as stack:
        folder = arguments.keep or pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="megatron-mutants-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        workplace = Workplace(folder.resolve(), arguments.jobs)
        workplace.prepare()
        results = test_all(places, workplace)
    if arguments.json:
        rows = [
            {
                **dataclasses.asdict(result.mutant),
                "verdict": result.verdict,
                "detail": result.detail,
                "seconds": round(result.seconds, 1),
            }
            for result in results
        ]
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return report(results)


if __name__ == "__main__":
    sys.exit(main())
