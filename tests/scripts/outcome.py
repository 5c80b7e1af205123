"""What became of a run, read from its exit code and its output."""

import re
from typing import NamedTuple


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
        """As it stands in expected.json."""
        if self.state != "refused":
            return self.state
        return sorted({refusal.flag for refusal in self.refusals})


def describe(recorded: str | list[str] | None) -> str:
    if recorded is None:
        return "nothing"
    return recorded if isinstance(recorded, str) else f"refused: {' '.join(recorded)}"


def judge(code: int, stdout: str, stderr: str) -> Outcome:
    if code == 2:
        refusals = read_refusals(stderr)
        return Outcome("refused", refusals) if refusals else Outcome("failed", text=stderr[-2000:])
    step = r"iteration +\d+/ +\d+ \|.*?\| lm loss: (\S+) \|.*?skipped iterations: +(\d+) \|"
    steps = re.findall(step, stdout)
    is_finite = all(re.fullmatch(r"[1-9]\.\d+E[+-]\d+", loss) for loss, _ in steps)
    if code == 0 and len(steps) == 2 and is_finite and all(skipped == "0" for _, skipped in steps):
        return Outcome("trains")
    text = f"exit code {code}; (loss, skipped) of each step: {steps}\n{stderr[-2000:]}"
    return Outcome("failed", text=text)


def read_refusals(stderr: str) -> list[Refusal]:
    """The problems of the error: one line or a numbered list, each with its line of advice."""
    fix = r"(?:\n +fix: (.*))?$"
    found = re.findall(r"^  \d+\. (.*)" + fix, stderr, re.MULTILINE)
    if not found:
        found = re.findall(r"^megatron[\w -]*: error: (.*)" + fix, stderr, re.MULTILINE)[:1]
    return [split_problem(*problem) for problem in found]


def split_problem(problem: str, fix: str) -> Refusal:
    """`--flag 3: reason` without the value; a choice that is missing here is part of the flag."""
    what, _, reason = problem.partition(": ")
    choice = re.fullmatch(r"(must be one of .*), got '(.*)'", reason)
    if what == "model" and choice:
        return Refusal(f"pretrain {choice[2]}", "is another family of models", fix)
    if reason == "belongs to no flag":
        return Refusal("further words", reason, fix)
    flag = what.split(" ")[0] if what.startswith("--") else what
    return Refusal(f"{flag} {choice[2]}", choice[1], fix) if choice else Refusal(flag, reason, fix)
