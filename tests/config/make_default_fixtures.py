"""Writes fixtures/megatron_defaults.json: every flag of Megatron-LM's own parser with its default.

Run with tests/parity's environment and the folder of a Megatron-LM checkout (made with d98e8a64 of
2026-08-22): `make_default_fixtures.py MEGATRON_LM`. A switch that turns something on is false, one
that turns something off is true (the default of what it turns off); null is Python's None. Defaults
that depend on the machine or are Python objects are left out.
"""

import argparse
import enum
import json
import sys
import typing
from pathlib import Path

typing.override = getattr(
    typing, "override", lambda method: method
)  # Megatron-LM asks for Python 3.12 only because of it
sys.path.insert(0, sys.argv[1])

from megatron.training import arguments  # noqa: E402


def is_plain(value):
    return (
        value is None
        or isinstance(value, (bool, int, float, str))
        or (isinstance(value, list) and all(map(is_plain, value)))
    )


def main():
    parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    defaults = {}
    for action in parser._actions:
        value = action.default.name if isinstance(action.default, enum.Enum) else action.default
        if isinstance(action, argparse._HelpAction) or not is_plain(value):
            continue
        for flag in action.option_strings:
            if not flag.startswith("--"):
                continue
            if isinstance(action, argparse._StoreFalseAction) and value is not True:
                continue
            defaults[flag] = value
    path = Path(__file__).parent / "fixtures" / "megatron_defaults.json"
    path.write_text(
        "{\n"
        + ",\n".join(
            f"{json.dumps(flag)}: {json.dumps(defaults[flag])}" for flag in sorted(defaults)
        )
        + "\n}\n"
    )
    print(f"{path}: {len(defaults)} flags")


main()
