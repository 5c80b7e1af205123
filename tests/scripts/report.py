"""Writes docs/published-scripts.md: what becomes of each script, and why it is refused."""

import collections
import pathlib

from flags import Script

BEGIN = """# Published launch scripts

Written by `make test-scripts UPDATE=1`; do not edit. {count} launch scripts and recipes of
Megatron-LM and Pai-Megatron-Patch, each made small by
[one rule](../tests/scripts/README.md#the-rule): **{trains} train**, {refused} are refused before
they start. The flags of each are in [tests/scripts](../tests/scripts) with repository, path and
commit.

## What the refused scripts wait for

A script counts once for each reason.
"""

LINKS = {
    "NVIDIA/Megatron-LM": "https://github.com/NVIDIA/Megatron-LM/blob",
    "alibaba/Pai-Megatron-Patch": "https://github.com/alibaba/Pai-Megatron-Patch/blob",
}

TITLES = {
    "megatron-examples": "Megatron-LM: examples",
    "megatron-recipes": "Megatron-LM: recipes of its functional tests",
    "megatron-old": "Megatron-LM: earlier releases",
    "pai": "Pai-Megatron-Patch",
}


def reason_of(refusal) -> str:
    """Reason and advice without the value that a script happens to give, on one line."""
    reason = (
        refusal.reason.split(" ", 1)[1]
        if refusal.reason.split(" ")[0].isdigit()
        else refusal.reason
    )
    is_general = (
        refusal.fix
        and refusal.flag not in refusal.fix
        and not refusal.fix.startswith(("see megatron", "leave it out"))
    )
    text = reason
    if reason == "is not in this version":
        text += f"; {refusal.fix}" if is_general else f" (`{refusal.flag}`)"
    return text.replace("|", "\\|")


def code(words: list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def features(outcomes: dict) -> list[str]:
    scripts = collections.defaultdict(set)
    flags = collections.defaultdict(set)
    for name, outcome in outcomes.items():
        for refusal in outcome.refusals:
            key = reason_of(refusal)
            scripts[key].add(name)
            flags[key].add(refusal.flag)
    lines = ["| scripts | reason | flags |", "| ---: | --- | --- |"]
    for reason in sorted(scripts, key=lambda key: (-len(scripts[key]), key)):
        lines.append(f"| {len(scripts[reason])} | {reason} | {code(sorted(flags[reason]))} |")
    return lines


def table(folder: str, scripts: list[Script], outcomes: dict) -> list[str]:
    lines = ["", f"## {TITLES.get(folder, folder)}", "", "| script | result |", "| --- | --- |"]
    for script in scripts:
        if not script.name.startswith(folder + "/"):
            continue
        header, outcome = script.header, outcomes[script.name]
        link = f"{LINKS[header['repository']]}/{header['commit'][:12]}/{header['path']}"
        recorded = outcome.recorded()
        result = "trains" if recorded == "trains" else f"refused: {code(recorded)}"
        lines.append(f"| [{script.name.split('/')[1]}]({link}) | {result} |")
    return lines


def write(path: pathlib.Path, scripts: list[Script], outcomes: dict) -> None:
    trains = sum(outcome.state == "trains" for outcome in outcomes.values())
    lines = [BEGIN.format(count=len(outcomes), trains=trains, refused=len(outcomes) - trains)]
    lines += features(outcomes)
    for folder in sorted({script.name.split("/")[0] for script in scripts}):
        lines += table(folder, scripts, outcomes)
    path.write_text("\n".join(lines) + "\n")
