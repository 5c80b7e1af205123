#!/usr/bin/env python3
"""Times `megatron preprocess-data` against Megatron-LM's script with as many workers.

Both read the same JSON lines with GPT-2's vocabulary (tokenizer.json) in turns of one run, and must
write the same bytes. Speeds are those that both programs print, without their starts. CPU times of
whole processes of ours, and of `megatron tokenize` on the same texts, tell which share of the
tokenizer's speed remains.

Usage: preprocess.py --megatron-lm FOLDER [--megabytes 50] [--workers 1 2] [--turns 3]
FOLDER is a clone of https://github.com/NVIDIA/Megatron-LM.
Environment: MEGATRON (default build/bin/megatron)
"""
import argparse
import filecmp
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run  # noqa: E402

os.environ["TOKENIZERS_PARALLELISM"] = "false"

# Runs a script as if no compiler for GPUs were there, with which megatron-core compiles on import.
WITHOUT_GPU = """
import runpy, sys
import torch.utils.cpp_extension
def load_inline(*arguments, **options):
    raise RuntimeError("no GPU")
torch.utils.cpp_extension.load_inline = load_inline
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_timed(command, log, **options):
    """Returns the CPU time of a process and what it prints."""
    process = subprocess.Popen(command, stdout=log, stderr=log, **options)
    _, status, usage = os.wait4(process.pid, 0)
    log.seek(0)
    said = log.read()
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{said[-2000:]}")
    return usage.ru_utime + usage.ru_stime, said


def write_inputs(folder, megabytes):
    """Writes a corpus, its texts as lines, and the tokenizer. Returns the size of the texts."""
    tokenizer, _, _ = run.gpt2()
    (folder / "tokenizer.json").write_bytes(pathlib.Path(tokenizer).read_bytes())
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    lines = run.repeated(run.english(), megabytes)
    documents = [" ".join(lines[i : i + 8]) for i in range(0, len(lines), 8)]
    (folder / "texts.txt").write_text("\n".join(documents) + "\n")
    with open(folder / "corpus.jsonl", "w") as corpus:
        for document in documents:
            corpus.write(json.dumps({"text": document}) + "\n")
    return (folder / "texts.txt").stat().st_size / 1e6


def measure(program, script, folder, flags, environment):
    """Returns MB/s of both programs, and the speed of ours divided by that of its tokenizer."""
    with open(folder / "log", "w+") as log:
        command = [program, "preprocess-data", *flags, "--tokenizer-model", "tokenizer.json"]
        command += ["--output-prefix", "ours", "--json"]
        our_cpu, said = run_timed(command, log, cwd=folder)
        report = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    with open(folder / "log", "w+") as log:
        command = [sys.executable, "-c", WITHOUT_GPU, script, *flags, "--tokenizer-model", "."]
        command += ["--output-prefix", "theirs", "--log-interval", "100"]
        _, said = run_timed(command, log, cwd=folder, env=environment)
        mebibytes = float(re.findall(r"docs/s, ([0-9.]+) MB/s", said)[-1])
    with open(folder / "ids", "w+") as ids, open(folder / "texts.txt") as texts:
        command = [program, "tokenize", "--tokenizer-model", "tokenizer.json"]
        tokenizer_cpu, _ = run_timed(command, ids, cwd=folder, stdin=texts)
    for end in ("bin", "idx"):
        files = [folder / f"{name}_text_document.{end}" for name in ("ours", "theirs")]
        if not filecmp.cmp(*files, shallow=False):
            sys.exit(f"the .{end} files differ")
    speed = report["text_bytes"] / 1e6 / report["seconds"]
    return speed, mebibytes * 1.048576, tokenizer_cpu / our_cpu


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megatron-lm", type=pathlib.Path, required=True)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    program = os.path.abspath(os.environ.get("MEGATRON", "build/bin/megatron"))
    clone = arguments.megatron_lm.resolve()
    script = clone / "tools" / "preprocess_data.py"
    environment = os.environ | {"PYTHONPATH": str(clone)}  # before the package megatron-core
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        size = write_inputs(folder, arguments.megabytes)
        flags = "--input corpus.jsonl --tokenizer-type HuggingFaceTokenizer --append-eod".split()
        for workers in arguments.workers:
            turns = [
                measure(program, script, folder, flags + ["--workers", str(workers)], environment)
                for _ in range(arguments.turns)
            ]
            ours, theirs, of_tokenizer = (statistics.median(values) for values in zip(*turns))
            result = {
                "workers": workers,
                "megabytes": round(size, 1),
                "megatron_mb_per_s": round(ours, 1),
                "megatron_lm_mb_per_s": round(theirs, 2),
                "times_as_fast": round(ours / theirs, 1),
                "of_tokenizer_speed": round(of_tokenizer, 2),
            }
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
