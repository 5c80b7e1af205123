"""Compares `megatron tokenize --offsets` with the offsets of the `tokenizers` and `sentencepiece`
packages on fuzzed lines: tokenizer.json of every family, byte-level ones with every way to trim
offsets, and SentencePiece models of every kind. The byte offsets are those of the characters.

Usage: offsets_parity.py [--lines 3000] [--seed 1] [--only NAME]
Environment: MEGATRON (default build/bin/megatron)
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import sentencepiece
import tokenizer_kinds_parity as kinds
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
    for family in parity.FAMILIES:
        yield family.__name__, family(texts, 700)


def offsets_json(line, tokens):
    """The line that we print for (id, begin, end) in characters."""
    starts = [0]
    for character in line:
        starts.append(starts[-1] + len(character.encode()))
    return {
        "ids": [token[0] for token in tokens],
        "offsets": [[begin, end] for _, begin, end in tokens],
        "byte_offsets": [[starts[begin], starts[end]] for _, begin, end in tokens],
    }


def tokens_of_tokenizer(tokenizer, line):
    encoding = tokenizer.encode(line)
    return [(i, *pair) for i, pair in zip(encoding.ids, encoding.offsets)]


def tokens_of_processor(processor, line):
    """The package tells bytes."""
    pieces = processor.encode(line, out_type="proto").pieces
    raw = line.encode()
    return [(p.id, len(raw[: p.begin].decode()), len(raw[: p.end].decode())) for p in pieces]


def cases(folder, texts):
    """Yields (name, file, function from a line to its tokens)."""
    path = folder / "tokenizer.json"
    for name, tokenizer in variants(texts):
        tokenizer.save(str(path))
        yield name, path, lambda line, t=tokenizer: tokens_of_tokenizer(t, line)
    for kind in (kinds.mistral, kinds.trained_sentencepiece):
        for name, _, model in kind(folder, texts):
            processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
            yield name, model, lambda line, p=processor: tokens_of_processor(p, line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    texts = parity.corpus(rng)
    lines = [parity.fuzzed_line(rng) for _ in range(options.lines)]
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        for name, path, tokens_of in cases(pathlib.Path(folder), texts):
            if options.only not in name:
                continue
            with report.guard(name):
                done = subprocess.run(
                    [MEGATRON, "tokenize", "--offsets", "--tokenizer-model", str(path)],
                    input=b"\n".join(lines) + b"\n",
                    capture_output=True,
                    check=True,
                )
                got = [json.loads(line) for line in done.stdout.splitlines()]
                decoded = [x.decode("utf-8", errors="replace") for x in lines]
                wanted = [offsets_json(line, tokens_of(line)) for line in decoded]
                wrong = [i for i, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]]
                passed = not wrong and len(got) == len(wanted)
                report.result(
                    f"offsets of {name}", passed, f"{len(wanted)} lines, {len(wrong)} wrong"
                )
                for i in wrong[:1]:
                    print(f"     {lines[i]!r}\n     wanted {wanted[i]}\n     got    {got[i]}")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
