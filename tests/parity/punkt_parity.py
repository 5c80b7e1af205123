"""Compares `preprocess-data --split-sentences` with nltk's Punkt.

The sentences of real text in several languages with nltk's published parameters (which the package
llama-index-core carries), with and without --keep-newlines, as Megatron-LM's preprocess_data.py
makes them. The text is the documentation and the licenses of installed packages, damaged at random.
Usage: punkt_parity.py [--seed 1]    environment: MEGATRON
"""
import argparse
import importlib.metadata
import json
import random
import struct
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np
from nltk.tokenize.punkt import (
    PunktLanguageVars,
    PunktParameters,
    PunktSentenceTokenizer,
)

from program import run
from report import Report

LANGUAGES = ("english", "german", "french", "czech", "greek", "russian", "turkish", "spanish")
INSERTS = (
    ". ", "? ", "! ", "...", ".. ", " . . . ", ". . ", "Dr. ", "e.g. ", "U.S. ", "J. ", " 3. ",
    " 1,000. ", " -5.", ".) ", '." ', "\u201d ", "\u00bb ", "\u00ab", "\n", "\n\n", "\r\n", "\t",
    "\u00a0", "\u2003", "\u0085", "--", " -- ", "-", ",", ";", ":", "?!", "!!!", "(", "'",
    "\u00c4.", "\u0130", "\u03a3.", "\u0661.", "x_y. ", "_.", "#", "@", "*", "&", ".,",
    ").", "\u3002",
)  # fmt: skip


class KeepNewlines(PunktLanguageVars):
    """Megatron-LM's change: the white space behind a sentence is part of the match."""

    _period_context_fmt = r"""
        \S*
        %(SentEndChars)s
        \s*
        (?=(?P<after_tok>
            %(NonWord)s
            |
            (?P<next_tok>\S+)
        ))"""


def punkt_tab():
    package = importlib.metadata.distribution("llama-index-core")
    return Path(package.locate_file("llama_index/core/_static/nltk_cache/tokenizers/punkt_tab"))


def load(folder):
    parameters = PunktParameters()
    lines = lambda name: (folder / name).read_text("utf-8").splitlines()
    parameters.abbrev_types = set(lines("abbrev_types.txt"))
    parameters.sent_starters = set(lines("sent_starters.txt"))
    parameters.collocations = {tuple(line.split("\t")) for line in lines("collocations.tab")}
    for line in lines("ortho_context.tab"):
        word, bits = line.split("\t")
        parameters.ortho_context[word] = int(bits)
    return parameters


def texts():
    """Real text: descriptions and licenses of packages, and documentation of modules."""
    site = Path(sysconfig.get_paths()["purelib"])
    files = [*site.glob("*.dist-info/METADATA"), *site.glob("*.dist-info/**/LICENSE*")]
    files += Path(sysconfig.get_paths()["stdlib"]).glob("*.py")
    for file in sorted(path for path in files if path.is_file()):
        text = file.read_text("utf-8", errors="replace")
        yield from (text[begin : begin + 4000] for begin in range(0, min(len(text), 40000), 4000))


def damaged(draw, text):
    for _ in range(draw.randint(0, 30)):
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice(INSERTS) + text[at + draw.choice((0, 0, 3)) :]
    return text


def our_sentences(folder, documents, *flags):
    """The sentences as bytes, from the sequences of the .bin and .idx files."""
    with open(f"{folder}/in.jsonl", "w", encoding="utf-8") as file:
        for text in documents:
            file.write(json.dumps({"text": text}) + "\n")
    run(
        "preprocess-data", "--input", f"{folder}/in.jsonl", "--output-prefix", f"{folder}/out",
        "--tokenizer-type", "ByteTokenizer", "--split-sentences", *flags,
    )  # fmt: skip
    with open(f"{folder}/out_text_sentence.idx", "rb") as file:
        file.read(9 + 8)
        code = file.read(1)[0]
        sequences, ends = struct.unpack("<QQ", file.read(16))
        lengths = np.frombuffer(file.read(4 * sequences), np.int32)
        file.read(8 * sequences)
        documents = np.frombuffer(file.read(8 * ends), np.int64)
    kind = {1: np.uint8, 8: np.uint16, 4: np.int32}[code]
    tokens = np.fromfile(f"{folder}/out_text_sentence.bin", kind).astype(np.uint8).tobytes()
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    sentences = [tokens[begin:end] for begin, end in zip(bounds, bounds[1:])]
    return [sentences[begin:end] for begin, end in zip(documents, documents[1:])]


def compare(report, name, ours, theirs, documents):
    for number, (own, peer) in enumerate(zip(ours, theirs)):
        for place in range(max(len(own), len(peer))):
            if own[place : place + 1] != peer[place : place + 1]:
                detail = f"document {number}: {own[place:][:1]} instead of {peer[place:][:1]}"
                return report.result(name, False, detail)
    count = sum(map(len, theirs))
    report.result(name, len(ours) == len(documents), f"{count} sentences of {len(ours)} documents")


def sentences(parameters, document, keep_newlines=False):
    splitter = PunktSentenceTokenizer()
    if keep_newlines:
        splitter = PunktSentenceTokenizer(lang_vars=KeepNewlines())
    splitter._params = parameters
    return [sentence.encode("utf-8") for sentence in splitter.tokenize(document)]


def check_language(report, draw, folder, language, documents):
    parameters = load(punkt_tab() / language)
    documents = [damaged(draw, text) for text in draw.sample(documents, min(250, len(documents)))]
    flags = ["--punkt-model", punkt_tab(), "--lang", language]
    for keep in (False, True):
        theirs = [sentences(parameters, text, keep) for text in documents]
        ours = our_sentences(folder, documents, *flags, *(["--keep-newlines"] if keep else []))
        name = f"punkt: {language}{', newlines kept' if keep else ''}"
        compare(report, name, ours, theirs, documents)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report, draw, documents = Report(), random.Random(options.seed), list(texts())
    for language in LANGUAGES:
        with tempfile.TemporaryDirectory() as folder, report.guard(f"punkt: {language}"):
            check_language(report, draw, folder, language, documents)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
