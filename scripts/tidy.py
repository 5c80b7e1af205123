#!/usr/bin/env python3
"""Runs clang-tidy on the sources named on standard input and remembers which of them are clean.

A clean result is an empty file in the cache folder. Its name is a hash of all that the result
depends on: the source and every header of this repository that it includes, .clang-tidy, the
versions of clang-tidy, the compiler, Debian's packages and LibTorch, and the compile commands. A
source with findings is never remembered, so it is reported each time. Words after `--` are given to
clang-tidy.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(?:["<]([^">\n]+)[">]|\w)', re.MULTILINE)
MAX_ENTRIES = 20_000  # some twenty versions of every source
MAX_AGE_S = 60 * 24 * 3600


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class File(NamedTuple):
    """A file as it was read. `includes` is None where the preprocessor computes a name."""

    digest: bytes
    changed_ns: int
    includes: list[str] | None


class Sources:
    """Files of the repository, each read once, and how the build compiles them."""

    def __init__(self, build: pathlib.Path):
        self.files: dict[str, File] = {}
        self.found: dict[str, bool] = {}
        self.commands: dict[str, list[str]] = {}
        torch = self.torch_folder(build)
        for entry in json.loads((build / "compile_commands.json").read_text()):
            command = re.sub(r" -o \S+ -c \S+$", "", entry["command"])
            command = command.replace(torch, "<torch>").replace(str(ROOT), "<root>")
            name = os.path.relpath(entry["file"], ROOT)
            self.commands.setdefault(name, []).append(command)
        commands = {command for each in self.commands.values() for command in each}
        folders = {folder for line in commands for folder in re.findall(r"-I<root>/(\S+)", line)}
        self.folders = sorted(folders)

    def torch_folder(self, build: pathlib.Path) -> str:
        cache = (build / "CMakeCache.txt").read_text()
        folder = re.search(r"^TORCH_DIR:\w+=(.*)$", cache, re.MULTILINE)[1]
        version = pathlib.Path(folder) / "include" / "torch" / "headeronly" / "version.h"
        self.torch_version = version.read_bytes()
        return folder

    def exists(self, name: str) -> bool:
        if name not in self.found:
            self.found[name] = os.path.isfile(ROOT / name)
        return self.found[name]

    def resolve(self, name: str, folder: str) -> list[str]:
        """Every file of the repository that an `#include` of `name` may mean."""
        places = [os.path.normpath(os.path.join(each, name)) for each in (folder, *self.folders)]
        return [place for place in places if self.exists(place)]

    def read(self, name: str) -> File:
        if name not in self.files:
            changed_ns = os.stat(ROOT / name).st_mtime_ns
            content = (ROOT / name).read_bytes()
            includes: list[str] | None = []
            for include in INCLUDE.findall(content):
                if not include:
                    includes = None
                    break
                includes += self.resolve(include.decode(), os.path.dirname(name))
            self.files[name] = File(hashlib.sha256(content).digest(), changed_ns, includes)
        return self.files[name]

    def closure(self, source: str) -> list[str] | None:
        """The source and all headers of the repository that it sees, or None if unknown."""
        seen = {source}
        waiting = [source]
        while waiting:
            includes = self.read(waiting.pop()).includes
            if includes is None:
                return None
            new = [name for name in includes if name not in seen]
            seen.update(new)
            waiting += new
        return sorted(seen)

    def is_unchanged(self, names: list[str]) -> bool:
        """Whether the files are still those that were read."""
        try:
            now = [os.stat(ROOT / name).st_mtime_ns for name in names]
        except FileNotFoundError:
            return False
        return now == [self.files[name].changed_ns for name in names]


class Tidy:
    def __init__(self, arguments):
        self.arguments = arguments
        self.sources = Sources(arguments.build)
        self.folder = arguments.cache
        self.folder.mkdir(parents=True, exist_ok=True)
        self.deadline = time.monotonic() + arguments.seconds
        self.finds: list[str] = []
        self.common = hashlib.sha256(pathlib.Path(__file__).read_bytes())
        versions = [output_of(arguments.program, "--version"), output_of("c++", "--version")]
        if shutil.which("dpkg-query"):
            versions.append(output_of("dpkg-query", "-W", "*-dev"))
        for text in (*versions, *arguments.options):
            self.common.update(text.replace(str(ROOT), "<root>").encode() + b"\0")
        self.common.update(self.sources.torch_version)
        configs = output_of("git", "ls-files", "-co", "--exclude-standard", "*.clang-tidy")
        for config in sorted(configs.split()):
            self.common.update(config.encode() + (ROOT / config).read_bytes())

    def entry(self, source: str, names: list[str] | None) -> pathlib.Path | None:
        """The file that says that `source`, with `names` as they are, is clean."""
        if names is None:
            return None
        key = self.common.copy()
        key.update("\n".join(sorted(self.sources.commands[source])).encode())
        for name in names:
            key.update(name.encode() + b"\0" + self.sources.files[name].digest)
        return self.folder / key.hexdigest()

    def is_known(self, source: str) -> bool:
        entry = self.entry(source, self.sources.closure(source))
        if entry is None or not entry.exists():
            return False
        entry.touch()
        return True

    def check(self, source: str) -> bool | None:
        """Whether clang-tidy finds nothing; None if there is no time left to start it."""
        if time.monotonic() > self.deadline:
            return None
        command = [self.arguments.program, "-p", str(self.arguments.build)]
        command += [*self.arguments.options, source]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if done.returncode:
            sys.stdout.write(done.stdout.rstrip() + "\n")
            sys.stdout.flush()
            self.finds += re.findall(r"^\S+ (?:error|warning): .*$", done.stdout, re.MULTILINE)
            return False
        names = self.sources.closure(source)
        if names is not None and self.sources.is_unchanged(names):
            self.entry(source, names).touch()
        return True

    def prune(self) -> None:
        """Removes entries that were not used for long, and the oldest where there are too many."""
        entries = [(entry.stat().st_mtime, entry.path) for entry in os.scandir(self.folder)]
        entries.sort(reverse=True)
        oldest = time.time() - MAX_AGE_S
        for i, (used, path) in enumerate(entries):
            if i >= MAX_ENTRIES or used < oldest:
                pathlib.Path(path).unlink(missing_ok=True)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a configured folder")
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="of clean results")
    parser.add_argument("--program", required=True, help="clang-tidy")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="sources at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="starts no source later")
    parser.add_argument("options", nargs="*", help="options of clang-tidy, after --")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    os.chdir(ROOT)
    tidy = Tidy(arguments)
    sources = [line for line in sys.stdin.read().split() if line in tidy.sources.commands]
    unknown = [source for source in sources if not tidy.is_known(source)]
    print(
        f"lint: clang-tidy of {len(unknown)} sources, {len(sources) - len(unknown)} others are"
        f" known to be clean",
        flush=True,
    )
    pool = concurrent.futures.ThreadPoolExecutor(arguments.jobs)
    try:
        results = list(pool.map(tidy.check, unknown))
    finally:
        pool.shutdown(cancel_futures=True)
    tidy.prune()
    left_out = [source for source, clean in zip(unknown, results) if clean is None]
    if left_out:
        within = f"{arguments.seconds:g} s (LINT_SECONDS)"
        print(f"\n!! lint: {len(left_out)} sources were not checked within {within}:\n")
        print("  " + "\n  ".join(left_out))
    if False in results:
        finds = sorted(set(tidy.finds))
        print("\nlint: what clang-tidy found, once more:\n  " + "\n  ".join(finds))
    return 1 if False in results else 0


if __name__ == "__main__":
    sys.exit(main())
