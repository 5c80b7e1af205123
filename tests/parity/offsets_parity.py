"""Compares `megatron tokenize --offsets` with the offsets of the `tokenizers` package on fuzzed
lines, for byte-level tokenizers with every way to trim them. The byte offsets are those of the
characters.

Usage: offsets_parity.py [--lines 3000] [--seed 1]
Environment: MEGATRON (default build/bin/megatron)
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import tokenizers_parity as parity
from program import MEGATRON
from report import Report
from tokenizers import AddedToken, processors


def variants(texts):
    """Yields (name, tokenizer)."""
    for trims in (False, True):
        for prefix in (False, True):
            tokenizer = parity.gpt2(texts, 700)
            tokenizer.post_processor = processors.ByteLevel(
                trim_offsets=trims, add_prefix_space=prefix
            )
            yield f"gpt2 trim {trims} prefix {prefix}", tokenizer
    tokenizer = parity.llama3(texts, 700)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens([AddedToken(" the  ", normalized=False), AddedToken("é", lstrip=True)])
    ends = [("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))]
    template = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    for trims in (False, True):
        byte_level = processors.ByteLevel(trim_offsets=trims)
        tokenizer.post_processor = processors.Sequence([byte_level, template])
        yield f"llama3 with added tokens, trim {trims}", tokenizer
    tokenizer.post_processor = processors.RobertaProcessing(
        ends[1], ends[0], trim_offsets=True, add_prefix_space=False
    )
    yield "llama3 with RobertaProcessing", tokenizer
    yield "qwen2 with NFC", parity.qwen2(texts, 700)


def expected(tokenizer, line):
    encoding = tokenizer.encode(line)
    starts = [0]
    for character in line:
        starts.append(starts[-1] + len(character.encode()))
    return {
        "ids": encoding.ids,
        "offsets": [list(pair) for pair in encoding.offsets],
        "byte_offsets": [[starts[a], starts[b]] for a, b in encoding.offsets],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    texts = parity.corpus(rng)
    lines = [parity.fuzzed_line(rng) for _ in range(options.lines)]
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"
        for name, tokenizer in variants(texts):
            with report.guard(name):
                tokenizer.save(str(path))
                done = subprocess.run(
                    [MEGATRON, "tokenize", "--offsets", "--tokenizer-model", str(path)],
                    input=b"\n".join(lines) + b"\n",
                    capture_output=True,
                    check=True,
                )
                got = [json.loads(line) for line in done.stdout.splitlines()]
                wanted = [expected(tokenizer, x.decode("utf-8", errors="replace")) for x in lines]
                wrong = [i for i, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]]
                passed = not wrong and len(got) == len(wanted)
                report.result(f"offsets of {name}", passed, f"{len(wanted)} lines")
                for i in wrong[:1]:
                    print(f"     {lines[i]!r}\n     wanted {wanted[i]}\n     got    {got[i]}")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
