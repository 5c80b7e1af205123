#!/usr/bin/env python3
"""Runs each recorded script, made small by scaling.py, and holds the program against expected.json.

A script either trains two steps or is refused with exactly the flags that stand in the table. `--update` rewrites the table and
docs/published-scripts.md.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import report
from flags import HERE, Script, all_scripts
from scaling import small_flags

ROOT = HERE.parent.parent
FIXTURES = ROOT / "tests" / "tokenizers" / "fixtures"
EXPECTED = HERE / "expected.json"
WORDS = "the quick brown fox jumps over a lazy dog while seven green birds sing on one old roof of red stone".split()


class Refusal(NamedTuple):
    flag: str
    reason: str
    fix: str


class Outcome:
    """`state` is "trains", "refused" or "failed"; `text` says more about a failure."""

    def __init__(self, state: str, refusals: list[Refusal] | None = None, text: str = ""):
        self.state = state
        self.refusals = refusals or []
        self.text = text

    def recorded(self) -> str | list[str]:
        return sorted({refusal.flag for refusal in self.refusals}) if self.state == "refused" else self.state


def make_data(program: pathlib.Path, folder: pathlib.Path) -> dict[str, str]:
    """A small corpus in GPT-2's and in a Hugging Face tokenizer's tokens; the paths that stand for the placeholders.
    It has many short documents: published splits give a few hundred-thousandths of them to validation and test."""
    corpus = folder / "corpus.jsonl"
    lines = [" ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(8 + i % 8)) for i in range(60000)]
    corpus.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    gpt2, hugging_face = FIXTURES / "gpt2", FIXTURES / "qwen2.json"
    kinds = {
        "GPT2BPETokenizer": ["--vocab-file", gpt2 / "vocab.json", "--merge-file", gpt2 / "merges.txt"],
        "HuggingFaceTokenizer": ["--tokenizer-model", hugging_face],
    }
    for kind, files in kinds.items():
        prefix = folder / kind
        command = [program, "preprocess-data", "--input", corpus, "--output-prefix", prefix, "--tokenizer-type", kind, *files,
                   "--append-eod", "--workers", "2"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        splits = {split: [f"{prefix}_text_document"] for split in ("train", "valid", "test")}
        (folder / f"{kind}.json").write_text(json.dumps(splits))
    return {"{VOCAB}": str(gpt2 / "vocab.json"), "{MERGES}": str(gpt2 / "merges.txt"), "{TOKENIZER}": str(hugging_face)}


def command_of(script: Script, program: pathlib.Path, data: pathlib.Path, files: dict[str, str], own: pathlib.Path) -> list[str]:
    small, ranks = small_flags(script)
    kind = script.value("--tokenizer-type")
    kind = kind if kind == "HuggingFaceTokenizer" else "GPT2BPETokenizer"
    if script.has("--patch-tokenizer-type"):
        kind = "HuggingFaceTokenizer"
        small += [("--tokenizer-type", [kind]), ("--tokenizer-model", ["{TOKENIZER}"])]
    places = {**files, "{DATA}": f"{data / kind}_text_document", "{SPLITS}": f"{data / kind}.json", "{SAVE}": str(own / "save"), "{LOAD}": str(own / "load"),
              "{TENSORBOARD}": str(own / "tensorboard"), "{CACHE}": str(own / "cache"), "{WANDB}": "run"}
    words = []
    for flag, values in small:
        if flag == "--tokenizer-model":
            values = ["{TOKENIZER}"]
        words += [flag, *(places.get(value, value) for value in values)]
    return [str(program), "launch", "--nproc-per-node", str(ranks), "--", "pretrain", script.family, *words]


def parse_refusals(stderr: str) -> list[Refusal]:
    """The problems of the program's error, from one line or from a numbered list, each with the line of its fix."""
    fix = r"(?:\n +fix: (.*))?$"
    found = re.findall(r"^  \d+\. (.*)" + fix, stderr, re.MULTILINE)
    if not found:
        found = re.findall(r"^megatron[\w -]*: error: (.*)" + fix, stderr, re.MULTILINE)[:1]
    return [split_problem(*problem) for problem in found]


def split_problem(problem: str, fix: str) -> Refusal:
    """"--flag 3: reason" without its value; a choice that is not there counts as part of what is refused."""
    what, _, reason = problem.partition(": ")
    choice = re.fullmatch(r"(must be one of .*), got '(.*)'", reason)
    if what == "model" and choice:
        return Refusal(f"pretrain {choice[2]}", "is another family of models", fix)
    flag = what.split(" ")[0] if what.startswith("--") else what
    return Refusal(f"{flag} {choice[2]}", choice[1], fix) if choice else Refusal(flag, reason, fix)


def judge(code: int, stdout: str, stderr: str) -> Outcome:
    if code == 2:
        refusals = parse_refusals(stderr)
        return Outcome("refused", refusals) if refusals else Outcome("failed", text=stderr[-2000:])
    steps = re.findall(r"iteration +\d+/ +\d+ \|.*?\| lm loss: (\S+) \|.*?skipped iterations: +(\d+) \|", stdout)
    finite = all(re.fullmatch(r"[1-9]\.\d+E[+-]\d+", loss) and skipped == "0" for loss, skipped in steps)
    if code == 0 and len(steps) == 2 and finite:
        return Outcome("trains")
    return Outcome("failed", text=f"exit {code}; (loss, skipped) of each step: {steps}\n{stderr[-2000:]}")


def run(script: Script, program: pathlib.Path, data: pathlib.Path, files: dict[str, str], timeout: float) -> Outcome:
    own = data / "runs" / script.name
    own.mkdir(parents=True)
    command = command_of(script, program, data, files, own)
    try:
        done = subprocess.run(command, cwd=own, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        return judge(done.returncode, done.stdout, done.stderr.replace(str(data), "..."))
    except subprocess.TimeoutExpired:
        return Outcome("failed", text=f"still running after {timeout:g} s")
    finally:
        shutil.rmtree(own, ignore_errors=True)


def describe(recorded: str | list[str] | None) -> str:
    if recorded is None:
        return "nothing"
    return recorded if isinstance(recorded, str) else f"refused: {' '.join(recorded)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / os.environ.get("BUILD_DIR", "build") / "bin" / "megatron")
    parser.add_argument("--only", default="", metavar="NAME", help="scripts whose name holds NAME")
    parser.add_argument("--jobs", type=int, default=1, help="scripts at a time; each has two ranks")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for each script")
    parser.add_argument("--update", action="store_true", help="write what happens now to expected.json and docs/published-scripts.md")
    parser.add_argument("--show", action="store_true", help="print the command of each script and run nothing")
    parser.add_argument("--verbose", action="store_true", help="print the reasons of each refusal")
    arguments = parser.parse_args()
    scripts = [script for script in all_scripts() if arguments.only in script.name]
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    start = time.monotonic()
    failed = 0
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        data = pathlib.Path(folder)
        files = make_data(arguments.program, data)
        if arguments.show:
            for script in scripts:
                print(" ".join(command_of(script, arguments.program, data, files, data)), end="\n\n")
            return 0
        tasks = {script.name: pool.submit(run, script, arguments.program, data, files, arguments.timeout) for script in scripts}
        for script in scripts:
            outcome = outcomes[script.name] = tasks[script.name].result()
            now, before = outcome.recorded(), expected.get(script.name)
            wrong = outcome.state == "failed" or (now != before and not arguments.update)
            failed += wrong
            print(f"{'FAILED' if wrong else 'ok':6} {script.name}: {describe(now)}", flush=True)
            if wrong and now != before:
                print(f"         expected {describe(before)}")
            if outcome.state == "failed":
                print("         " + outcome.text.replace("\n", "\n         "))
            if arguments.verbose:
                for refusal in outcome.refusals:
                    print(f"           {refusal.flag}: {refusal.reason}")
    if arguments.update and not arguments.only and not failed:
        EXPECTED.write_text(json.dumps({name: outcome.recorded() for name, outcome in outcomes.items()}, indent=1) + "\n")
        report.write(ROOT / "docs" / "published-scripts.md", scripts, outcomes)
    print(f"published scripts: {len(outcomes) - failed} passed, {failed} failed, {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
