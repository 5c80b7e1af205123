"""Runs the megatron program as a user would and reads what it prints.

MEGATRON names the binary (default build/bin/megatron)."""
import fcntl
import json
import os
import re
import subprocess
from pathlib import Path

from safetensors.numpy import load_file

MEGATRON = os.environ.get(
    "MEGATRON", str(Path(__file__).resolve().parents[2] / "build/bin/megatron")
)
NO_DROPOUT = ("--hidden-dropout", 0, "--attention-dropout", 0)
SGD_LEARNING_RATE = 2.0**14  # a power of two so large that W − W' keeps the gradient's 24 bits


class ProgramError(Exception):
    """Says that the program ended with another exit code than wanted.
    It shows the command and all it printed."""


def run(*arguments, stdin=None, expect=0, timeout=120):
    """Runs `megatron arguments…` and returns the completed process.
    A wrong exit code raises ProgramError."""
    command = [MEGATRON, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout)
    if done.returncode != expect:
        said = next(
            (line for line in (done.stderr + done.stdout).splitlines() if line.strip()),
            "nothing was printed",
        )
        raise ProgramError(
            f"exit {done.returncode}, expected {expect}: {said}\n"
            f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        )
    return done


def test_program(name):
    """Builds one of our test programs and returns its path.
    Scripts that run at the same time take turns, for Ninja does not lock its folder."""
    build = Path(MEGATRON).resolve().parents[1]
    with (build / "CMakeCache.txt").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(
            ["cmake", "--build", build, "--target", name],
            check=True,
            capture_output=True,
            timeout=1800,
        )
    return build / "bin" / name


def score(load, rows, extra=()):
    """Per-token log-probabilities of each row of ids."""
    lines = "".join(json.dumps({"ids": [int(token) for token in row]}) + "\n" for row in rows)
    answers = [
        json.loads(line)
        for line in run("score", "--load", load, *extra, stdin=lines).stdout.splitlines()
        if line.startswith("{")
    ]
    if len(answers) != len(rows):
        raise ProgramError(f"score answered {len(answers)} lines for {len(rows)} rows")
    return answers


def log_values(output, name):
    """The values of one field of Megatron's log line, in order of iterations."""
    return [
        float(value)
        for value in re.findall(rf"\| {re.escape(name)}: +([-+.0-9Ee]+|nan|inf)", output)
    ]


def convert(load, save, kind):
    run("convert", "--load", load, "--save", save, "--format", kind)
    return Path(save)


def pretrain(corpus, extra, timeout=120, ranks=1, dropout=NO_DROPOUT, model="gpt"):
    """Runs `pretrain MODEL` on a corpus.Corpus on that many processes and returns its stdout.
    The run is deterministic in everything that touches the mathematics."""
    arguments = [
        "--tokenizer-type",
        "NullTokenizer",
        "--vocab-size",
        corpus.vocab_size,
        "--data-path",
        corpus.prefix,
        "--split",
        "1,0,0",
        "--seq-length",
        corpus.seq_length,
        "--seed",
        corpus.seed,
        *dropout,
        "--eval-iters",
        0,
        "--log-interval",
        1,
        *extra,
    ]
    launcher = ["launch", "--nproc-per-node", ranks, "--"] if ranks > 1 else []
    return run(*launcher, "pretrain", model, *arguments, timeout=timeout).stdout


def sgd_output(corpus, load, save, extra=(), ranks=1, model="gpt"):
    """Runs one plain SGD step over the corpus's samples (micro batches of two).
    Returns what it prints."""
    return pretrain(
        corpus,
        [
            "--load",
            load,
            "--save",
            save,
            "--save-interval",
            1,
            "--train-iters",
            1,
            "--micro-batch-size",
            2,
            "--global-batch-size",
            corpus.num_samples,
            "--optimizer",
            "sgd",
            "--lr",
            SGD_LEARNING_RATE,
            "--lr-decay-style",
            "constant",
            "--weight-decay",
            0,
            "--sgd-momentum",
            0,
            "--clip-grad",
            0,
            *extra,
        ],
        ranks=ranks,
        model=model,
    )


def sgd_step(corpus, load, save, extra=(), ranks=1, model="gpt"):
    """Returns the loss of the log line of sgd_output()."""
    output = sgd_output(corpus, load, save, extra, ranks, model)
    losses = log_values(output, "lm loss")
    if len(losses) != 1:
        raise ProgramError(
            f"expected one log line with `lm loss`, found {len(losses)} in\n{output}"
        )
    return losses[0]


def gradients(before, after):
    """(W − W')/lr of every tensor in two dictionaries, in float64."""
    return {
        name: (before[name].astype("float64") - after[name].astype("float64")) / SGD_LEARNING_RATE
        for name in before
        if name in after
    }


def read_hf(directory):
    """All tensors of a Hugging Face directory as numpy arrays."""
    tensors = {}
    for file in sorted(Path(directory).glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors
