#!/usr/bin/env python3
"""Plants one-line faults in the sources and checks that the tests notice them.

tests/mutants/<room>.ini lists the faults of a room; README.md describes the format. Each fault (a
mutant) names a file, a text that occurs exactly once in it, its replacement, and the test program
that must fail. run.py copies the tracked files into a scratch folder, configures it once, and for
each mutant plants it, builds the named program, runs it and takes the mutant back. A mutant is
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

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NEEDED_SHARE = 0.95
# As in cmake/rooms.cmake: what these programs leave to tests of their own.
DEFAULT_FILTERS = {
    "pipeline_tests": "-*Bubble*",
    "cli_tests": "-KilledRuns.*:Launch.*:TwoHosts.*",
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    room: str
    name: str
    file: str
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
        missing = {"file", "old", "new", "test"} - fields.keys()
        unknown = fields.keys() - {"file", "old", "new", "test"}
        if missing or unknown:
            raise ValueError(
                f"{path}: [{name}]: missing {sorted(missing)}, unknown {sorted(unknown)}"
            )
        program, _, tests = fields["test"].partition(" ")
        mutants.append(
            Mutant(
                room=path.stem,
                name=name,
                file=fields["file"],
                old=fields["old"],
                new=fields["new"],
                program=program,
                filter=tests.strip(),
            )
        )
    return mutants


def read_all() -> list[Mutant]:
    return [mutant for path in sorted(HERE.glob("*.ini")) for mutant in read_room(path)]


class Checker:
    """Finds mistakes of the lists without building anything."""

    def __init__(self):
        self.texts: dict[str, str] = {}
        self.tests: dict[str, list[str]] = {}

    def problem(self, mutant: Mutant) -> str | None:
        if mutant.file not in self.texts:
            path = ROOT / mutant.file
            if not path.is_file():
                return f"{mutant.file} does not exist"
            self.texts[mutant.file] = path.read_text(encoding="utf-8")
        count = self.texts[mutant.file].count(mutant.old) if mutant.old else 0
        if count != 1:
            return f"the old text occurs {count} times in {mutant.file}, not once: {mutant.old}"
        if mutant.old == mutant.new:
            return "the new text is the old one"
        return self.problem_of_test(mutant)

    def problem_of_test(self, mutant: Mutant) -> str | None:
        names = self.tests_of(mutant.program)
        if not names:
            return f"there is no test program {mutant.program}"
        for pattern in filter(None, mutant.filter.split(":")):
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


def check(mutants: list[Mutant]) -> bool:
    checker = Checker()
    problems = [(mutant, problem) for mutant in mutants if (problem := checker.problem(mutant))]
    for mutant, problem in problems:
        print(f"{mutant.label}: {problem}", file=sys.stderr)
    return not problems


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
        # A fault may leave a variable unused, so warnings are not errors here.
        self.call(["cmake", "--preset", "release", f"-DTORCH_DIR={torch}", "-DMEGATRON_WERROR=OFF"])

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
        tests = mutant.filter or DEFAULT_FILTERS.get(mutant.program, "*")
        command = [
            self.build_folder / "bin" / mutant.program,
            "--gtest_brief=1",
            "--gtest_fail_fast",
            f"--gtest_filter={tests}",
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
    def __init__(self, place: Workplace):
        self.place = place
        self.baselines: dict[tuple[str, str], float | str] = {}

    def baseline(self, mutant: Mutant) -> float | str:
        """Returns the seconds that the tests take without a mutant, or why they cannot be used."""
        key = (mutant.program, mutant.filter)
        if key not in self.baselines:
            self.baselines[key] = self.measure_baseline(mutant)
        return self.baselines[key]

    def measure_baseline(self, mutant: Mutant) -> float | str:
        if problem := self.place.build(mutant.program):
            return f"{mutant.program} does not build without a mutant: {problem}"
        start = time.monotonic()
        verdict, output = self.place.run(mutant, 1800)
        if verdict != "passed":
            return f"the tests fail without a mutant ({verdict}): {output[-1000:]}"
        ran = re.search(r"\[=+\] (\d+) tests? from", output)
        if ran is None or ran.group(1) == "0":
            return f"the filter {mutant.filter} selects no test"
        return time.monotonic() - start

    def test(self, mutant: Mutant) -> Result:
        usual_s = self.baseline(mutant)
        start = time.monotonic()
        if isinstance(usual_s, str):
            return Result(mutant, "error", usual_s, 0)
        path = self.place.folder / mutant.file
        original = path.read_text(encoding="utf-8")
        path.write_text(original.replace(mutant.old, mutant.new), encoding="utf-8")
        try:
            if problem := self.place.build(mutant.program):
                return Result(mutant, "error", f"does not compile: {problem}", 0)
            verdict, _ = self.place.run(mutant, 60 + 5 * usual_s)
        finally:
            path.write_text(original, encoding="utf-8")
        seconds = time.monotonic() - start
        if verdict == "passed":
            return Result(mutant, "survived", f"{mutant.program} {mutant.filter}", seconds)
        return Result(mutant, "killed", verdict, seconds)


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def test_all(mutants: list[Mutant], place: Workplace) -> list[Result]:
    tester = Tester(place)
    # Neighbours share what a build of their program has to do.
    ordered = sorted(mutants, key=lambda mutant: (mutant.room, mutant.program, mutant.file))
    results = []
    start = time.monotonic()
    for number, mutant in enumerate(ordered, 1):
        result = tester.test(mutant)
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
        mutants = read_all()
    except (ValueError, configparser.Error) as error:
        print(error, file=sys.stderr)
        return 2
    mutants = [
        mutant
        for mutant in mutants
        if (not arguments.room or mutant.room in arguments.room)
        and (not arguments.name or mutant.name in arguments.name)
    ]
    if not mutants:
        print("no mutant has that room or name", file=sys.stderr)
        return 2
    if not check(mutants):
        return 2
    if arguments.check:
        print(f"{len(mutants)} mutants can be planted")
        return 0
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.label:44} {mutant.file}: {mutant.old}  ->  {mutant.new or '(nothing)'}")
        return 0
    with contextlib.ExitStack() as stack:
        folder = arguments.keep or pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="megatron-mutants-"))
        )
        folder.mkdir(parents=True, exist_ok=True)
        place = Workplace(folder.resolve(), arguments.jobs)
        place.prepare()
        results = test_all(mutants, place)
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
