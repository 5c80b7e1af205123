"""A recorded script: where it comes from and the flags it passes, in their order."""

import pathlib
import re
import shlex

HERE = pathlib.Path(__file__).parent


class Script:
    """`flags` holds (flag, values); a later one wins, as in argparse. `name` is FOLDER/NAME."""

    def __init__(self, path: pathlib.Path):
        self.name = f"{path.parent.name}/{path.stem}"
        self.header: dict[str, str] = {}
        self.flags: list[tuple[str, list[str]]] = []
        for line in path.read_text().splitlines():
            if line.startswith("# "):
                key, value = line[2:].split(": ", 1)
                self.header[key] = value
            elif line:
                flag, *values = shlex.split(line)
                first, equals, value = flag.partition("=")
                self.flags.append((first, [value, *values] if equals else values))

    @property
    def family(self) -> str:
        """What follows `megatron pretrain`: the kind of model that the entry point trains."""
        known = {"pretrain_gpt2.py": "gpt", "finetune_gpt.py": "gpt", "train.py": "vlm"}
        entry = self.header["entry"]
        if self.header["repository"].startswith("alibaba/"):
            return "gpt"  # one pretrain_<family>.py for each family of GPT models
        return known.get(entry) or re.sub(r"^pretrain_|\.py$", "", entry)

    def has(self, *names: str) -> bool:
        return any(flag in names for flag, _ in self.flags)

    def value(self, *names: str, default: str = "") -> str:
        found = [values[0] for flag, values in self.flags if flag in names and values]
        return found[-1] if found else default

    def number(self, *names: str, default: int = 0) -> int:
        try:
            return int(float(self.value(*names, default=str(default))))
        except ValueError:
            return default


def all_scripts() -> list[Script]:
    return [Script(path) for path in sorted(HERE.glob("*/*.flags"))]
