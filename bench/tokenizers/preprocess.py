#!/usr/bin/env python3
"""Times `megatron preprocess-data` beside Megatron-LM's script with as many workers.

Both read the same JSON lines with GPT-2's vocabulary (tokenizer.json) in turns of one run, and must
write the same bytes. Times are those of whole processes, start included: wall-clock time and CPU
time. `megatron tokenize` on the same texts tells which share of the tokenizer's speed remains.

Usage: preprocess.py --megatron-lm FOLDER [--megabytes 50] [--workers 1 2] [--turns 3]
FOLDER is a clone of https://github.com/NVIDIA/Megatron-LM.
Environment: MEGATRON (default build/bin/megatron)
"""
import argparse
import filecmp
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run  # noqa: E402

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def timed(command, log, **options):
    """Returns wall-clock and CPU time of a process and of those that it waits for."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=log, stderr=log, **options)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        log.seek(0)
        sys.exit(f"{' '.join(map(str, command))} failed:\n{log.read()[-2000:]}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megatron-lm", type=pathlib.Path, required=True)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    program = os.path.abspath(os.environ.get("MEGATRON", "build/bin/megatron"))
    script = arguments.megatron_lm.resolve() / "tools" / "preprocess_data.py"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        size = write_inputs(folder, arguments.megabytes)
        flags = "--input corpus.jsonl --tokenizer-type HuggingFaceTokenizer --append-eod".split()
        for workers in arguments.workers:
            flags_of_turn = flags + ["--workers", str(workers), "--log-interval", "100000"]
            times = {"megatron": [], "Megatron-LM": [], "tokenize": []}
            for _ in range(arguments.turns):
                with open(folder / "log", "w+") as log, open(folder / "texts.txt") as texts:
                    for peer, start, model in (
                        ("megatron", [program, "preprocess-data"], "tokenizer.json"),
                        ("Megatron-LM", [sys.executable, script], "."),
                    ):
                        command = start + flags_of_turn + ["--tokenizer-model", model]
                        command += ["--output-prefix", peer]
                        times[peer].append(timed(command, log, cwd=folder))
                    command = [program, "tokenize", "--tokenizer-model", "tokenizer.json"]
                    times["tokenize"].append(timed(command, log, cwd=folder, stdin=texts))
            for end in ("bin", "idx"):
                files = [folder / f"{peer}_text_document.{end}" for peer in list(times)[:2]]
                if not filecmp.cmp(*files, shallow=False):
                    sys.exit(f"the .{end} files differ")
            wall, cpu = (
                {peer: statistics.median(t[i] for t in times[peer]) for peer in times}
                for i in (0, 1)
            )
            result = {
                "workers": workers,
                "megabytes": round(size, 1),
                "megatron_mb_per_s": round(size / wall["megatron"], 1),
                "megatron_lm_mb_per_s": round(size / wall["Megatron-LM"], 2),
                "times_as_fast": round(wall["Megatron-LM"] / wall["megatron"], 1),
                "megatron_mb_per_cpu_s": round(size / cpu["megatron"], 1),
                "megatron_lm_mb_per_cpu_s": round(size / cpu["Megatron-LM"], 2),
                "times_as_fast_in_cpu_time": round(cpu["Megatron-LM"] / cpu["megatron"], 1),
                "of_tokenizer_speed": round(cpu["tokenize"] / cpu["megatron"], 2),
            }
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
