"""Thousands of short requests to `megatron serve`, 64 in flight, from clients that misbehave.

Clients cancel, disconnect at any moment, read slowly, close one direction, leave requests half
sent. Every answer that is read to its end must be the one of `megatron generate` (greedy) or
`megatron batch` (with a seed) on the same model, and of transformers for chats; the memory of the
server must be flat from a fifth of the requests, or 1000, on. Then many connections are opened
that say nothing, while the server must answer others.

Environment: SOAK_REQUESTS (2000), SOAK_CONNECTIONS (2000): the whole soak has 10000 of each."""
import asyncio
import json
import os
import random
import resource
import socket
import struct
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path

import program
from report import Report
from serving import ChatModel, Server

NUM_REQUESTS = int(os.environ.get("SOAK_REQUESTS", 2000))
NUM_CONNECTIONS = int(os.environ.get("SOAK_CONNECTIONS", 2000))
IN_FLIGHT = 64
# The KV cache is touched for the first time until then.
NUM_WARM = max(NUM_REQUESTS // 5, min(NUM_REQUESTS, 1000))
MOST_GROWTH = 1.05
LIMIT_S = 60  # for one answer
WORDS = "Once upon a time the weather of Rome was long. Why? 42 Köln 文 {} name user is & 🎉".split()
HALF_SENT = 32  # requests that stay so
# How often clients behave so, of 100.
BEHAVIOURS = {
    "whole": 45, "stream": 25, "cancelled stream": 9, "closed at once": 6, "reset at once": 4,
    "half sent": 4, "shut down": 3, "slow reader": 4,
}  # fmt: skip


class Bodies:
    """Requests, and the texts that answer them offline."""

    def __init__(self, model, folder):
        rng = random.Random(11)
        shared = " ".join(rng.choices(WORDS, k=180))  # several blocks of the KV cache

        def prompt():
            own = " ".join(rng.choices(WORDS, k=rng.randint(1, 25)))
            return f"{shared} {own}" if rng.random() < 0.2 else own

        self.all = []  # path, body, texts
        greedy = [prompt() for _ in range(120)]
        for text, answer in zip(greedy, self.generate(model, folder, greedy), strict=True):
            body = {"prompt": text, "max_tokens": 16, "temperature": 0}
            self.all.append(("/v1/completions", body, [answer]))
        sampled = [
            {"prompt": prompt(), "max_tokens": rng.randint(1, 32), "temperature": 1.0,
             "seed": rng.randrange(1000), "n": rng.choice([1, 1, 3]),
             "top_p": rng.choice([1.0, 0.8])}
            for _ in range(60)
        ]  # fmt: skip
        for body, texts in zip(sampled, self.batch(model, folder, sampled), strict=True):
            self.all.append(("/v1/completions", body, texts))
        while len(self.all) < 200:
            messages = [{"role": "user", "content": prompt()}]
            made = model.greedy(model.chat_ids(messages), 12)
            if len(self.all) % 2:
                body = {"messages": messages, "max_tokens": 12, "temperature": 0}
                self.all.append(("/v1/chat/completions", body, [model.text(made)]))
            else:
                body = {"input": messages, "max_output_tokens": 12, "temperature": 0}
                self.all.append(("/v1/responses", body, [model.text(made)]))

    def generate(self, model, folder, prompts):
        lines = "".join(json.dumps({"text": prompt}) + "\n" for prompt in prompts)
        (folder / "prompts.jsonl").write_text(lines)
        done = program.run(
            *("generate", "--load", model.folder, "--prompt-file", folder / "prompts.jsonl"),
            *("--max-new-tokens", 16, "--temperature", 0, "--json"),
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return [line["text"] for line in lines]

    def batch(self, model, folder, bodies):
        lines = [
            {"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}
            for i, body in enumerate(bodies)
        ]
        (folder / "batch.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        program.run("batch", folder / "batch.jsonl", "--load", model.folder,
                    "--output", folder / "answers.jsonl")  # fmt: skip
        answers = [json.loads(line) for line in (folder / "answers.jsonl").open()]
        return [
            [choice["text"] for choice in answer["response"]["body"]["choices"]]
            for answer in answers
        ]


def texts_of(path, answer):
    if path == "/v1/responses":
        parts = [part for item in answer["output"] for part in item["content"]]
        return ["".join(part["text"] for part in parts)]
    return [
        choice["text"] if "text" in choice else choice["message"]["content"]
        for choice in sorted(answer["choices"], key=lambda choice: choice["index"])
    ]


def texts_of_events(path, lines, count):
    texts = [""] * count
    for line in lines:
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            continue
        event = json.loads(line[6:])
        if path == "/v1/responses":
            texts[0] += event["delta"] if event["type"] == "response.output_text.delta" else ""
        for choice in event.get("choices", []):
            delta = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            texts[choice["index"]] += delta or ""
    return texts


def request_bytes(path, body):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


async def read_head(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    headers = dict(
        line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
    )
    return status, headers


async def read_chunks(reader):
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)


async def read_answer(reader, pause=0):
    status, headers = await read_head(reader)
    if b"content-length" in headers:
        return status, await reader.readexactly(int(headers[b"content-length"]))
    data = b""
    async for chunk in read_chunks(reader):
        data += chunk
        await asyncio.sleep(pause)
    return status, data


def reset(writer):
    """Ends the connection with a reset."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Soak:
    def __init__(self, server, bodies):
        self.server, self.bodies = server, bodies
        self.rng = random.Random(17)
        self.left = NUM_REQUESTS
        self.counts, self.wrong, self.memory, self.half_sent = Counter(), [], [], []

    async def run(self):
        sampler = asyncio.create_task(self.sample_memory())
        await asyncio.gather(*(self.client() for _ in range(IN_FLIGHT)))
        await asyncio.sleep(1)
        self.memory.append((NUM_REQUESTS, self.server.resident_bytes()))
        sampler.cancel()
        for writer in self.half_sent:
            writer.close()

    async def sample_memory(self):
        while True:
            self.memory.append((NUM_REQUESTS - self.left, self.server.resident_bytes()))
            await asyncio.sleep(0.05)

    async def client(self):
        """One request after the other; those that are read to their end share a connection."""
        kept = None
        while self.left > 0:
            self.left -= 1
            behaviour = self.rng.choices([*BEHAVIOURS], [*BEHAVIOURS.values()])[0]
            path, body, texts = self.rng.choice(self.bodies.all)
            try:
                if behaviour in ("whole", "stream"):
                    kept = kept or await self.connect()
                    await asyncio.wait_for(
                        self.read_whole(kept, path, body, texts, behaviour), LIMIT_S
                    )
                else:
                    await asyncio.wait_for(self.misbehave(behaviour, path, body, texts), LIMIT_S)
                self.counts[behaviour] += 1
            except Exception as error:
                self.wrong.append(f"{behaviour}, {path}: {type(error).__name__}: {error}")
                kept = None
        if kept:
            kept[1].close()

    def connect(self):
        return asyncio.open_connection("127.0.0.1", self.server.port)

    def compare(self, behaviour, path, body, status, got, texts):
        if status != 200 or got != texts:
            self.wrong.append(f"{behaviour}, {path}, {body}: {status} {got!r}, not {texts!r}")

    async def read_whole(self, connection, path, body, texts, behaviour, pause=0):
        reader, writer = connection
        streams = behaviour != "whole"
        writer.write(request_bytes(path, {**body, "stream": streams}))
        status, data = await read_answer(reader, pause)
        if status != 200:
            got = data
        elif streams:
            got = texts_of_events(path, data.split(b"\n"), len(texts))
        else:
            got = texts_of(path, json.loads(data))
        self.compare(behaviour, path, body, status, got, texts)

    async def misbehave(self, behaviour, path, body, texts):
        reader, writer = connection = await self.connect()
        if behaviour == "slow reader":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            pause = self.rng.uniform(0.005, 0.05)
            await self.read_whole(connection, path, body, texts, behaviour, pause)
            return writer.close()
        data = request_bytes(path, {**body, "stream": behaviour == "cancelled stream"})
        if behaviour == "half sent":
            writer.write(data[: self.rng.randrange(1, len(data))])
            if len(self.half_sent) < HALF_SENT:
                return self.half_sent.append(writer)
            await asyncio.sleep(self.rng.uniform(0, 0.1))
            return writer.close()
        writer.write(data)
        await writer.drain()
        if behaviour == "cancelled stream":
            await read_head(reader)
            count = self.rng.randrange(6)
            async for _ in read_chunks(reader):
                if count == 0:
                    break
                count -= 1
        elif behaviour == "shut down":  # the server may cancel the request or answer it
            writer.write_eof()
            await reader.read()
        else:
            await asyncio.sleep(self.rng.choice([0, 0, 0.001, 0.01]))
        if behaviour == "reset at once" or self.rng.random() < 0.3:
            reset(writer)
        else:
            writer.close()


def get(server, path, timeout=10):
    with urllib.request.urlopen(f"{server.url}{path}", timeout=timeout) as answer:
        return answer.read().decode()


def gauge(server, name):
    lines = [line for line in get(server, "/metrics").splitlines() if line.startswith(name)]
    return sum(float(line.split()[-1]) for line in lines)


def check_idle(report, server):
    """All that was cancelled must have left the engine."""
    names = ("megatron_num_requests_running", "megatron_num_requests_waiting")
    deadline = time.monotonic() + 20
    while sum(found := [gauge(server, name) for name in names]) and time.monotonic() < deadline:
        time.sleep(0.2)
    report.result("no request is left in the engine", not sum(found), f"{found}")


def check_memory(report, samples):
    first, last = max(size for done, size in samples if done <= NUM_WARM), samples[-1][1]
    said = f"{first / 2**20:.1f} MiB after {NUM_WARM}, {last / 2**20:.1f} at the end"
    highest = max(size for _, size in samples)
    report.result("memory is flat", last <= MOST_GROWTH * first,
                  f"{said}, at most {highest / 2**20:.1f}")  # fmt: skip


def soak(report, server, bodies):
    run = Soak(server, bodies)
    start = time.monotonic()
    asyncio.run(run.run())
    seconds = time.monotonic() - start
    for behaviour in BEHAVIOURS:
        wrong = [one for one in run.wrong if one.startswith(behaviour)]
        report.result(f"clients: {behaviour}", not wrong, f"{run.counts[behaviour]} requests")
        for one in wrong[:3]:
            print(f"     {one:.500}")
    report.result(f"{NUM_REQUESTS} requests", not run.wrong,
                  f"{seconds:.1f} s, {len(run.wrong)} wrong")  # fmt: skip
    check_idle(report, server)
    check_memory(report, run.memory)


def never_reads(report, server):
    """A stream whose client reads nothing ends in the engine before it is complete. The events are
    long, for the kernel alone holds some MB of what is sent; it shall hold little on our side.
    A client may be behind for some seconds, and the stream would last longer."""
    before = server.resident_bytes()
    body = {
        "messages": [{"role": "user", "content": "a"}], "max_tokens": 600, "ignore_eos": True,
        "n": 64, "stream": True, "logprobs": True, "top_logprobs": 20,
    }  # fmt: skip
    with socket.socket() as client:
        client.settimeout(30)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.connect(("127.0.0.1", server.port))
        client.sendall(request_bytes("/v1/chat/completions", body))
        deadline = time.monotonic() + 30
        while not gauge(server, "megatron_num_requests_running") and time.monotonic() < deadline:
            time.sleep(0.01)
        check_idle(report, server)
        grown = server.resident_bytes() - before
        received, end = 0, b""
        with suppress(ConnectionError):
            while b"[DONE]" not in end and (data := client.recv(1 << 16)):
                received, end = received + len(data), (end + data)[-100:]
    report.result("a client that reads nothing is disconnected", b"[DONE]" not in end,
                  f"after {received} bytes, memory {grown / 2**20:+.1f} MiB")  # fmt: skip


def open_quiet(server, count):
    """Opens connections of which a third has sent a part of a request."""
    clients, errors = [], Counter()
    for number in range(count):
        client = socket.socket()
        client.settimeout(20)
        try:
            client.connect(("127.0.0.1", server.port))
            if number % 3 == 0:
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n")
            clients.append(client)
        except OSError as error:
            errors[str(error)] += 1
            client.close()
    return clients, errors


def is_open(client):
    client.settimeout(0)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def connections(report, server, bodies):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(NUM_CONNECTIONS, hard - 500)
    before = server.resident_bytes()
    start = time.monotonic()
    clients, errors = open_quiet(server, count)
    seconds = time.monotonic() - start
    report.result(f"{count} open connections", not errors, f"{seconds:.1f} s {dict(errors) or ''}")
    slowest = 0
    for number in range(20):
        start = time.monotonic()
        get(server, "/health")
        slowest = max(slowest, time.monotonic() - start)
    report.result("health beside them", slowest < 2, f"at most {1000 * slowest:.1f} ms")
    path, body, texts = bodies.all[0]
    data = json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        report.result("a text beside them", texts_of(path, json.load(answer)) == texts)
    grown = (server.resident_bytes() - before) / 2**20
    kept = sum(map(is_open, clients))
    report.result("they stay open", kept == len(clients), f"{kept}, memory {grown:+.1f} MiB")
    chosen = clients[1::3][:50]  # have sent nothing yet
    right = 0
    for client in chosen:
        client.settimeout(20)
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    for client in chosen:
        right += client.recv(100).startswith(b"HTTP/1.1 200")
    report.result("they may ask later", right == len(chosen), f"{right} of {len(chosen)}")
    for client in clients:
        client.close()
    get(server, "/health")
    grown = (server.resident_bytes() - before) / 2**20
    report.result("health after them", True, f"memory {grown:+.1f} MiB")


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as work, report.guard("soak"):
        folder = Path(work)
        model = ChatModel(folder / "model")
        bodies = Bodies(model, folder)
        flags = ("--inference-dynamic-batching-buffer-size-gb", 0.05)
        with Server(model.folder, *flags, log=folder / "log") as server:
            with report.guard("requests"):
                soak(report, server, bodies)
            with report.guard("a client that reads nothing"):
                never_reads(report, server)
            with report.guard("connections"):
                connections(report, server, bodies)
        report.result("the server ends at SIGTERM", server.code == 143, f"exit {server.code}")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
