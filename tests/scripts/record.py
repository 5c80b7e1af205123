#!/usr/bin/env python3
"""Writes the .flags files again: runs each script of sources.py where `torchrun`, `python` and
the like only note what they are given. Needs git clones of both repositories, bash and PyYAML.

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

# A script finds these programs and no others: none reaches a network or starts a training.
NOTE = """#!/bin/bash
[ "$1" = -c ] && { echo 8; exit; }
printf "%s\\0" "$@" >> "$NOTED"
printf "\\0" >> "$NOTED"
"""
PROGRAMS = {
    **dict.fromkeys(["torchrun", "python", "python3"], NOTE),
    **dict.fromkeys(["mkdir", "find", "xargs", "cp", "pip", "git", "tee"], "#!/bin/bash\n"),
    "uv": '#!/bin/bash\nshift; exec "$@"\n',
    "sbatch": '#!/bin/bash\ncase "${@: -1}" in *.sh) exec bash "${@: -1}";; *) exec bash;; esac\n',
    "srun": '#!/bin/bash\nwhile [ "$1" != -c ]; do shift; done\nexec bash -c "$2"\n',
    "date": "#!/bin/bash\necho 0\n",
    "shuf": "#!/bin/bash\necho 29500\n",
}
REAL_PROGRAMS = (
    "bash dirname basename readlink realpath cat seq sed grep wc tr cut printenv".split()
)

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


# What a kind of recipe trains with.
ENTRIES = {
    "bert": "pretrain_bert.py",
    "t5": "pretrain_t5.py",
    "hybrid": "pretrain_hybrid.py",
    "nemotron": "pretrain_hybrid.py",
    "mimo": "train.py",
}

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
    blank = r'(?<!<)"?<(?!<)[^<>\n&|]*[A-Za-z/][^<>\n&|]*>"?(_text_document)?(/[\w.-]+)?'
    for script in folder.rglob("*.sh"):
        script.write_text(re.sub(blank, "{USER}", script.read_text(errors="replace")))


def unpack(source: Source, clone: str, tree: pathlib.Path) -> pathlib.Path:
    """Puts the script's part of the repository into `tree`; the folder that it is to be run in."""
    tree.mkdir()
    archive = git(clone, "archive", source.revision, source.path.split("/")[0])
    subprocess.run(["tar", "x", "-C", tree], input=archive, check=True)
    is_sc21 = "/sc21/" in source.path
    if is_sc21 or source.folder == "megatron-old":
        fill_blanks(tree)
    at = (tree / source.path).parent if is_sc21 or source.folder == "pai" else tree
    for name in ("{SAVE}", "{TENSORBOARD}", "{LOAD}"):
        (at / name).mkdir()
    (at / "pretrain_gpt.py").touch()  # some scripts look for it
    return at


def run_script(source: Source, clone: str, scratch: pathlib.Path) -> tuple[str, list[str]]:
    """The name of the Python program that the script starts, and the words it gives it."""
    programs, noted = scratch / "programs", scratch / "noted"
    at = unpack(source, clone, scratch / "tree")
    make_programs(programs)
    words = [word for word in shlex.split(source.given) if not IS_VARIABLE.match(word)]
    environment = {"PATH": str(programs), "NOTED": str(noted), **variables(source)}
    command = ["/usr/bin/bash", scratch / "tree" / source.path, *words]
    subprocess.run(command, cwd=at, env=environment, stdout=subprocess.DEVNULL, timeout=60)
    if not noted.exists():
        raise SystemExit(f"{source.name}: started nothing")
    calls = [call.split("\0") for call in noted.read_text().split("\0\0") if ".py" in call]
    entry = next(i for i, word in enumerate(calls[-1]) if word.endswith(".py"))
    flags = [word.replace(str(at), ".") for word in calls[-1][entry + 1 :] if word]
    return pathlib.Path(calls[-1][entry]).name, flags


def read_recipe(source: Source, clone: str) -> tuple[str, list[str]]:
    """The same from a recipe: `[a b]` and `1 2` are two words, any other value is one."""
    import yaml

    text = git(clone, "show", f"{source.revision}:{source.path}").decode()
    given = {"${" + name + "}": value for name, value in variables(source).items()}
    words = []
    for flag, value in yaml.load(text, Loader=yaml.BaseLoader)["MODEL_ARGS"].items():
        listed = re.fullmatch(r"\[([^]]+)\]|([\d ]+)", value) if isinstance(value, str) else None
        values = value if isinstance(value, list) else [given.get(value.strip(), value.strip())]
        words += [
            flag,
            *((listed[1] or listed[2]).split() if listed else [v for v in values if v != "true"]),
        ]
    return ENTRIES.get(source.path.split("/")[3], "pretrain_gpt.py"), words


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
    """Paths as placeholders; weights of a blend and names on a model hub stay."""
    flag, *values = group
    place = PLACEHOLDERS.get(flag)
    is_hub_name = flag == "--tokenizer-model" and re.fullmatch(r"[\w-]+/[\w.-]+", " ".join(values))
    if not place or is_hub_name:
        return group
    return [flag] + [value if re.fullmatch(r"[\d.]+", value) else place for value in values]


def write(source: Source, clone: str, entry: str, words: list[str]) -> None:
    commit = git(clone, "rev-parse", f"{source.revision}^{{commit}}").decode().strip()
    lines = [
        f"# repository: {source.repository}",
        f"# path: {source.path}",
        f"# commit: {commit}",
        f"# entry: {entry}",
    ]
    if source.given:
        lines.append(f"# given: {source.given}")
    lines += [
        re.sub(r"'(\{[A-Z]+\})'", r"\1", shlex.join(with_placeholders(group)))
        for group in grouped(words)
    ]
    target = HERE / source.folder / f"{source.name}.flags"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
            entry, words = (
                read_recipe(source, clone)
                if is_recipe
                else run_script(source, clone, pathlib.Path(scratch))
            )
        write(source, clone, entry, words)
        print(f"{source.folder}/{source.name}: {len(words)} words", flush=True)


if __name__ == "__main__":
    sys.exit(main())
