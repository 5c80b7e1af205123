"""Runs the commands of the section "From the demo to a chat" of docs/serving.md.

The demo would train for minutes: `make` trains a model of its shape for two iterations here. `pip`
checks that the parity environment has the package, and `xdg-open` fetches the page."""
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import program
from report import Report
from serving import free_port

DOCS = Path(__file__).resolve().parents[2] / "docs/serving.md"
SECTION = "From the demo to a chat"
STAND_INS = {
    "make": r"""
[ "$*" = demo ]
mkdir -p out/demo
for i in $(seq 400); do
  printf 'Ge1:%d In the beginning God created the heaven and the earth.\n\n' "$i"
done > text.txt
megatron=build/bin/megatron
$megatron preprocess-data --input text.txt --text-documents paragraph --output-prefix corpus \
  --tokenizer-type ByteTokenizer --append-eod
$megatron pretrain gpt --num-layers 2 --hidden-size 64 --ffn-hidden-size 128 \
  --num-attention-heads 2 --seq-length 256 --position-embedding-type rope --normalization RMSNorm \
  --swiglu --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --micro-batch-size 2 \
  --global-batch-size 2 --lr 3e-3 --train-iters 2 --eval-iters 0 --data-path corpus_text_document \
  --split 100,0,0 --tokenizer-type ByteTokenizer --save out/demo/checkpoint
""",
    "pip": """
[ "$1" = install ]
python3 -c "import $2; print('pip', $2.__name__)"
""",
    "xdg-open": """
echo "page $(curl --silent --fail "$1" | grep -c '<title>megatron</title>')"
""",
}  # fmt: skip


def blocks(kind):
    section = DOCS.read_text().split(f"## {SECTION}\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{kind}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def main():
    report = Report()
    (commands,), (python,) = blocks("sh"), blocks("python")
    lines = commands.count("\n") + python.count("\n")
    report.result("at most ten lines", lines <= 10, f"{lines}")
    port = str(free_port())
    commands = commands.replace("megatron serve", f"megatron serve --port {port}")
    commands, python = (text.replace(":8000", f":{port}") for text in (commands, python))
    with tempfile.TemporaryDirectory() as work, report.guard(SECTION):
        folder = Path(work)
        (folder / "build/bin").mkdir(parents=True)
        (folder / "build/bin/megatron").symlink_to(program.MEGATRON)
        (folder / "stand-ins").mkdir()
        for name, text in STAND_INS.items():
            file = folder / "stand-ins" / name
            file.write_text(f"#!/usr/bin/env bash\nset -euo pipefail\n{text}")
            file.chmod(0o755)
        (folder / "python3").symlink_to(sys.executable)
        script = f"{commands}\npython3 - <<'PYTHON'\n{python}PYTHON\nkill -TERM $!\nwait $!\n"
        paths = [folder / "stand-ins", Path(sys.executable).parent, os.environ["PATH"]]
        log = folder / "output"
        with log.open("w") as output:
            running = subprocess.Popen(
                ["bash", "-euc", script], cwd=folder, start_new_session=True,
                stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": ":".join(map(str, paths))},
            )  # fmt: skip
        try:
            running.wait(120)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)  # the server too, if a command failed
            output = log.read_text()
        wanted = {
            "the demo's checkpoint is served": f"listening on http://127.0.0.1:{port}",
            "the page opens": "page 1",
            "the package is there": "pip openai",
            "the client was answered": '"POST /v1/chat/completions" 200 prompt=22 ',
        }
        for name, text in wanted.items():
            report.result(name, text in output, text)
        ended = running.returncode == 128 + signal.SIGTERM
        report.result("all commands end, and the server at SIGTERM", ended, f"{running.returncode}")
        if not all(text in output for text in wanted.values()) or not ended:
            print(output)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
