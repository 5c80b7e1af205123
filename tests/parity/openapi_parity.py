"""schemathesis against `megatron serve`, by the description that the server gives of itself.

Every operation of /openapi.json gets requests that fit the description and requests that do not. No
answer may be a failure of the server, and statuses, types and bodies must be those that the
description names. Every path of docs/serving.md must be described.

Usage: openapi_parity.py [--description FILE] [--max-examples N]
  --description FILE   another description than the server's"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import xml.etree.ElementTree as xml
from pathlib import Path

from report import Report
from serving import ChatModel, Server

LIMIT_S = 90
# A request may fit the description and still be too long for the model, or ask for a constraint
# that no output can meet.
EXCLUDED = "positive_data_acceptance"
DOCS = Path(__file__).resolve().parents[2] / "docs/serving.md"


def documented_paths():
    """The paths in the first columns of the tables."""
    cells = re.findall(r"^\| (`/[^|]*) \|", DOCS.read_text(), re.MULTILINE)
    return [path for cell in cells for path in re.findall(r"`(/[^`]*)`", cell)]


def described(path, paths):
    """Parts of the documentation in capital letters are parameters."""
    pattern = re.sub(r"[A-Z]+", r"{[^/]+}", path)
    return any(re.fullmatch(pattern, one) for one in paths)


def run_schemathesis(description, server, folder, max_examples):
    """Returns the failures of each operation, and what was printed."""
    results = folder / "junit.xml"
    command = [
        *(Path(sys.executable).parent / "schemathesis", "run", description, "--url", server.url),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", max_examples, "--seed", 1),
        *("--exclude-checks", EXCLUDED, "--continue-on-failure", "--no-shrink", "--no-color"),
        *("--report", "junit", "--report-junit-path", results, "--warnings", "off"),
        *("--generation-database", "none", "--request-timeout", 20),
        *("--suppress-health-check", "all"),
    ]
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")},
    )
    failures = {}
    if results.exists():
        for case in xml.parse(results).iter("testcase"):
            found = failures.setdefault(case.get("name"), [])
            for kind in ("failure", "error"):
                found += [" ".join((one.text or kind).split()) for one in case.iter(kind)]
    return failures, done.stdout + done.stderr, done.returncode


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--description", type=Path)
    parser.add_argument("--max-examples", type=int, default=30)
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as work, report.guard("openapi"):
        folder = Path(work)
        model = ChatModel(folder / "model")
        flags = ("--max-model-len", 256, "--disable-access-log")
        with Server(model.folder, *flags, log=folder / "log") as server:
            file = folder / "openapi.json"
            if options.description:
                file.write_text(options.description.read_text())
            else:
                with urllib.request.urlopen(f"{server.url}/openapi.json") as answer:
                    file.write_bytes(answer.read())
            paths = json.loads(file.read_text())["paths"]
            for path in documented_paths():
                report.result(f"{path} is described", described(path, paths))
            found, output, code = run_schemathesis(file, server, folder, options.max_examples)
            for name, failures in found.items():
                report.result(name, not failures, f"{failures[0]:.400}" if failures else "")
            summary = re.findall(r"^.*(?:generated|passed|failed|errored).*$", output, re.MULTILINE)
            report.result("schemathesis", code == 0 and found, "; ".join(summary[-2:]))
            if code != 0:
                print(output)
            with urllib.request.urlopen(f"{server.url}/health") as answer:
                report.result("the server is healthy afterwards", answer.status == 200)
        report.result("the server ends at SIGTERM", server.code == 143, f"exit {server.code}")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
