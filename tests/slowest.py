#!/usr/bin/env python3
"""Prints the slowest tests of a folder of GoogleTest's reports: slowest.py FOLDER NUMBER."""

import pathlib
import sys
import xml.etree.ElementTree


def times(report: pathlib.Path) -> list[tuple[float, str]]:
    """Seconds and `program Suite.Test` of each test."""
    try:
        cases = xml.etree.ElementTree.parse(report).iter("testcase")
        return [
            (float(case.get("time")), f"{report.stem} {case.get('classname')}.{case.get('name')}")
            for case in cases
        ]
    except xml.etree.ElementTree.ParseError:  # of a program that was killed while it wrote
        return []


def main() -> None:
    folder, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    tests = [test for report in folder.glob("*.xml") for test in times(report)]
    slowest = sorted(tests, reverse=True)[:number]
    if slowest:
        print(f"The slowest of {len(tests)} tests:")
    for seconds, name in slowest:
        print(f"{seconds:8.1f} s  {name}")


if __name__ == "__main__":
    main()
