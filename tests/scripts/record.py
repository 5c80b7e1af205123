#!/usr/bin/env python3
"""Writes the .flags files again: runs each script of sources.py where `torchrun`, `python` and the like only note what they
are given. Needs git clones of both repositories, bash and, for recipes in YAML, PyYAML.

    record.py --clone NVIDIA/Megatron-LM=DIR --clone alibaba/Pai-Megatron-Patch=DIR
"""

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from sources import SOURCES, Source

HERE = pathlib.Path(__file__).parent

# A script finds these programs and no others: none of them writes a file, reaches a network or starts training.
NOTE = '#!/bin/bash\n[ "$1" = -c ] && { echo 8; exit; }\nprintf "%s\\0" "$@" >> "$NOTED"; printf "\\0" >> "$NOTED"\n'
PROGRAMS = {
    "torchrun": NOTE,
    "python": NOTE,
    "python3": NOTE,
    "uv": '#!/bin/bash\nshift; exec "$@"\n',
    "sbatch": '#!/bin/bash\nfor last; do :; done\ncase "$last" in *.sh) exec bash "$last";; *) exec bash;; esac\n',
    "srun": '#!/bin/bash\nwhile [ "$1" != -c ]; do shift; done\nexec bash -c "$2"\n',
    "mkdir": "#!/bin/bash\n",
    "find": "#!/bin/bash\n",
    "xargs": "#!/bin/bash\n",
    "cp": "#!/bin/bash\n",
    "pip": "#!/bin/bash\n",
    "git": "#!/bin/bash\n",
    "tee": "#!/bin/bash\n",
    "date": "#!/bin/bash\necho 0\n",
    "shuf": "#!/bin/bash\necho 29500\n",
}
REAL_PROGRAMS = ["bash", "dirname", "basename", "readlink", "realpath", "cat", "seq", "sed", "grep", "wc", "tr", "cut", "printenv"]

# Where a recipe keeps what it reads; the placeholder that stands for it here.
PLACES = [
    (("--data-path", "--train-data-path", "--valid-data-path"), "{DATA}"),
    (("--per-split-data-args-path",), "{SPLITS}"),
    (("--vocab-file",), "{VOCAB}"),
    (("--merge-file",), "{MERGES}"),
    (("--tokenizer-model",), "{TOKENIZER}"),
    (("--save",), "{SAVE}"),
    (("--load", "--pretrained-checkpoint"), "{LOAD}"),
    (("--tensorboard-dir",), "{TENSORBOARD}"),
    (("--data-cache-path",), "{CACHE}"),
    (("--wandb-exp-name", "--wandb-save-dir"), "{WANDB}"),
]
PLACEHOLDERS = {flag: placeholder for flags, placeholder in PLACES for flag in flags}


IS_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=")


def variables(source: Source) -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(source.given) if IS_VARIABLE.match(word))


def git(clone: str, *args: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *args], check=True, capture_output=True).stdout


def make_programs(folder: pathlib.Path) -> None:
    folder.mkdir()
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in REAL_PROGRAMS:
        (folder / name).symlink_to(f"/usr/bin/{name}")


def fill_blanks(folder: pathlib.Path) -> None:
    """Old scripts ask for an edit: `DATA_PATH=<Specify path>` is no bash before it is made."""
    for script in folder.rglob("*.sh"):
        text = script.read_text(errors="replace")
        text = re.sub(r'(?<!<)"?<(?!<)[^<>\n&|]*[A-Za-z/][^<>\n&|]*>"?(_text_document)?(/[\w.-]+)?', "{USER}", text)
        script.write_text(text)


def run_script(source: Source, clone: str, scratch: pathlib.Path) -> tuple[str, list[str]]:
    tree, programs, noted = scratch / "tree", scratch / "programs", scratch / "noted"
    tree.mkdir()
    make_programs(programs)
    archive = git(clone, "archive", source.revision, source.path.split("/")[0])
    subprocess.run(["tar", "x", "-C", tree], input=archive, check=True)
    if source.folder == "megatron-old" or "sc21" in source.path:
        fill_blanks(tree)
    script = tree / source.path
    text = script.read_text(errors="replace")
    at = script.parent if source.repository != "NVIDIA/Megatron-LM" or "pwd`/CONFIG" in text else tree
    for name in ("{SAVE}", "{TENSORBOARD}", "{LOAD}"):
        (at / name).mkdir(exist_ok=True)
    for entry in ("pretrain_gpt.py",):
        (at / entry).touch()
    words = [word for word in shlex.split(source.given) if not IS_VARIABLE.match(word)]
    environment = {"PATH": str(programs), "NOTED": str(noted), "HOME": "/nonexistent", **variables(source)}
    done = subprocess.run(["/usr/bin/bash", script, *words], cwd=at, env=environment, capture_output=True, text=True, timeout=60)
    if not noted.exists():
        raise SystemExit(f"{source.name}: started nothing\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    calls = [call.split("\0") for call in noted.read_text().split("\0\0") if ".py" in call]
    call = calls[-1]
    entry = next(i for i, word in enumerate(call) if word.endswith(".py"))
    return pathlib.Path(call[entry]).name, [word.replace(str(at), ".") for word in call[entry + 1 :] if word]


def read_recipe(source: Source, clone: str) -> tuple[str, list[str]]:
    import yaml

    text = git(clone, "show", f"{source.revision}:{source.path}").decode()

    class Words(yaml.BaseLoader):
        """Every value stays the word that stands in the file."""

    given = {"${" + name + "}": value for name, value in variables(source).items()}
    words = []
    for flag, value in yaml.load(text, Loader=Words)["MODEL_ARGS"].items():
        value = " ".join(value) if isinstance(value, list) else value.strip()
        value = given.get(value, value)
        words.append(flag)
        if value == "true":
            continue
        if re.fullmatch(r"\[[^]]+\]", value):
            value = value[1:-1]
        whole = re.search(r"[ |()]", value) and not flag.endswith(("path", "args")) and "[" not in value
        words += [value] if whole and "(" in value else value.split(" ")
    entry = {"bert": "pretrain_bert.py", "t5": "pretrain_t5.py", "hybrid": "pretrain_hybrid.py", "nemotron": "pretrain_hybrid.py"}
    kind = source.path.split("/")[3]
    return entry.get(kind, "train.py" if kind == "mimo" else "pretrain_gpt.py"), words


def grouped(words: list[str]) -> list[list[str]]:
    """One list for each flag and its values."""
    groups: list[list[str]] = []
    for word in words:
        if re.match(r"--?[A-Za-z]", word) or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def with_placeholders(group: list[str]) -> list[str]:
    flag, *values = group
    place = PLACEHOLDERS.get(flag)
    if not place:
        return group
    hub_name = flag == "--tokenizer-model" and re.fullmatch(r"[\w-]+/[\w.-]+", values[0] if values else "")
    if hub_name or not values:
        return group
    return [flag] + [value if re.fullmatch(r"[\d.]+", value) else place for value in values]


def write(source: Source, clone: str, entry: str, words: list[str]) -> None:
    commit = git(clone, "rev-parse", f"{source.revision}^{{commit}}").decode().strip()
    lines = [f"# repository: {source.repository}", f"# path: {source.path}", f"# commit: {commit}", f"# entry: {entry}"]
    if source.given:
        lines.append(f"# given: {source.given}")
    lines += [re.sub(r"'(\{[A-Z]+\})'", r"\1", shlex.join(with_placeholders(group))) for group in grouped(words)]
    target = HERE / source.folder / f"{source.name}.flags"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clone", action="append", required=True, metavar="OWNER/NAME=DIR")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    clones = dict(word.split("=", 1) for word in arguments.clone)
    for source in SOURCES:
        if arguments.only not in source.name or source.repository not in clones:
            continue
        clone = clones[source.repository]
        with tempfile.TemporaryDirectory() as scratch:
            is_recipe = source.path.endswith(".yaml")
            entry, words = read_recipe(source, clone) if is_recipe else run_script(source, clone, pathlib.Path(scratch))
        write(source, clone, entry, words)
        print(f"{source.folder}/{source.name}: {len(words)} words", flush=True)


if __name__ == "__main__":
    sys.exit(main())
