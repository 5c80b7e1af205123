"""One turn of each contender of serving.py: a fresh server that clients load, `megatron batch` on a
file of the same requests, or the start of a server."""
import http.client
import json
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "suite"))
import inputs  # noqa: E402
import turns  # noqa: E402

GREEDY = {"temperature": 0, "ignore_eos": True}


@dataclass(frozen=True)
class Case:
    """The requests of a step, of which `clients` are in flight or computed at any time, and how
    many steps of a turn are counted."""

    offline: str  # contender that has no server: engine, inference_bench.cpp; or batch, the command
    prompt: int  # tokens, the mean if they vary
    new_tokens: int
    requests: int
    clients: int = 32
    varies: bool = False  # lengths are uniform, from half to one and a half of the means
    steps: int = 1
    warm: int = 0  # steps before the counted ones

    def lengths(self):
        """(prompt, new tokens) of each request: the same in every step."""
        draws = random.Random(1)

        def length(mean):
            return draws.randint(mean // 2, mean + mean // 2) if self.varies else mean

        return [(length(self.prompt), length(self.new_tokens)) for _ in range(self.requests)]

    def tokens(self):
        return sum(new_tokens for _, new_tokens in self.lengths())


def words_of(*parts):
    return [str(part) for part in parts]


def model_flags(folder, sizes):
    """What every command of ours is told of the model, whose folder has no tokenizer."""
    vocab = ["--tokenizer-type", "NullTokenizer", "--vocab-size", sizes["vocab_size"]]
    return ["--load", folder, *vocab]


def output_of(command):
    """Returns what a command prints, or ends the run with its own words."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


class Requests:
    """The requests of a case as files, in the forms of bench-serve and of batch.

    No prompt begins as another one does, so the prefix cache knows none."""

    def __init__(self, case, sizes, folder):
        from turn import prompt_of  # here: --help needs no package

        self.folder_, self.vocab_size_ = folder, sizes["vocab_size"]
        folder.mkdir()
        for step in range(case.warm + case.steps):
            rows = [
                (prompt_of(step * case.requests + i, prompt, self.vocab_size_), new_tokens)
                for i, (prompt, new_tokens) in enumerate(case.lengths())
            ]
            loads = [{"prompt": prompt, "output_tokens": count} for prompt, count in rows]
            write_lines(self.load(step), loads)
            bodies = [{"prompt": prompt, "max_tokens": count, **GREEDY} for prompt, count in rows]
            write_lines(self.batch(step), [batch_line(i, body) for i, body in enumerate(bodies)])

    def load(self, step):
        return self.folder_ / f"load-{step}.jsonl"

    def batch(self, step):
        return self.folder_ / f"batch-{step}.jsonl"


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def batch_line(number, body):
    return {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": body}


@contextmanager
def served(folder, sizes, work, *flags):
    """Runs `megatron serve` on a free port; gives its address, once it listens, and process id."""
    errors = work / "server_errors.txt"
    command = [inputs.MEGATRON, "serve", *model_flags(folder, sizes), "--port", 0]
    command += ["--disable-access-log", *flags]
    with open(errors, "w") as error_file:
        process = subprocess.Popen(
            words_of(*command), stdout=subprocess.PIPE, stderr=error_file, text=True
        )
    try:
        line = next((line for line in process.stdout if line.startswith("listening on ")), None)
        if line is None:
            raise SystemExit(f"megatron serve ended with {process.wait()}:\n{errors.read_text()}")
        yield line.split()[-1], process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def ask(url, path, body=None):
    """Sends a request and returns the answer, which is still to be read."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=600)
    headers = {"Content-Type": "application/json"} if body else {}
    connection.request("POST" if body else "GET", path, body and json.dumps(body), headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"{url}{path}: status {answer.status}: {answer.read().decode()}")
    return answer


def loss_of_server(url, prompt):
    """−log p of the most likely first token, as inference_bench.cpp prints it."""
    body = {"prompt": prompt, "max_tokens": 1, "logprobs": 1, **GREEDY}
    answer = json.loads(ask(url, "/v1/completions", body).read())
    return -answer["choices"][0]["logprobs"]["token_logprobs"][0]


def send_load(url, case, file):
    """Runs bench-serve and returns what it measured. All answers must have come, in full length."""
    command = [inputs.MEGATRON, "bench-serve", "--url", url, "--data", file, "--json"]
    command += ["--profile", "concurrent", "--request-rate", case.clients]
    command += ["--num-prompts", case.requests, "--extra-body", json.dumps(GREEDY)]
    load = json.loads(output_of(words_of(*command)))["loads"][0]
    if load["failed"] or load["output_tokens"] != case.tokens():
        raise SystemExit(
            f"bench-serve got {load['output_tokens']} of {case.tokens()} tokens, and "
            f"{load['failed']} requests failed: {load['errors']}"
        )
    return load


def turn_of_server(case, folder, sizes, work, requests, loads):
    """Leaves what bench-serve measured of the counted steps in `loads`."""
    from turn import prompt_of  # here: --help needs no package

    begin = time.monotonic()
    most = ["--inference-dynamic-batching-max-requests", case.clients]
    with served(folder, sizes, work, *most) as (url, process):
        seen = [send_load(url, case, requests.load(0))]
        first_step_s = time.monotonic() - begin
        seen += [
            send_load(url, case, requests.load(step)) for step in range(1, case.warm + case.steps)
        ]
        loss = loss_of_server(url, prompt_of(0, case.prompt, sizes["vocab_size"]))
        peak = turns.peak_bytes(process)
    loads += seen[case.warm :]
    return {
        "steps_ms": [load["duration_s"] * 1e3 for load in seen[case.warm :]],
        "losses": [loss],
        "first_step_s": first_step_s,
        "peak_bytes": peak,
    }


def turn_of_batch(case, folder, sizes, work, requests):
    """Runs `megatron batch`, whose clock starts when the model is loaded."""
    begin = time.monotonic()
    answers = work / "answers.jsonl"
    answers.unlink(missing_ok=True)  # it would be continued
    command = [inputs.MEGATRON, "batch", requests.batch(0), *model_flags(folder, sizes)]
    command += ["--inference-dynamic-batching-max-requests", case.clients]
    found = json.loads(output_of(words_of(*command, "--output", answers, "--json")))
    if found["completion_tokens"] != case.tokens():
        raise SystemExit(f"megatron batch got {found} for {case.tokens()} tokens")
    return {
        "steps_ms": [found["seconds"] * 1e3],
        "losses": [None],
        "first_step_s": time.monotonic() - begin,
        "peak_bytes": None,
    }


def start_of_server(case, until, folder, sizes, work):
    """Starts a server until it is healthy, or until the first token of a completion has come.
    Returns the time as a step's."""
    from turn import prompt_of  # here: --help needs no package

    prompt = prompt_of(0, case.prompt, sizes["vocab_size"])
    begin = time.monotonic()
    with served(folder, sizes, work) as (url, process):
        if until == "health":
            ask(url, "/health").read()
        else:
            body = {"prompt": prompt, "max_tokens": 1, "stream": True, **GREEDY}
            line = ask(url, "/v1/completions", body).readline()
            if not line.startswith(b"data: {"):
                raise SystemExit(f"{url}: a stream begins with {line}")
        seconds = time.monotonic() - begin
        peak = turns.peak_bytes(process)
    return {
        "steps_ms": [seconds * 1e3],
        "losses": [None],
        "first_step_s": seconds,
        "peak_bytes": peak,
    }
