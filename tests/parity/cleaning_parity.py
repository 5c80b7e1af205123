"""Compares the cleaning of preprocess-data with datasketch and datatrove.

Near duplicates: datasketch's MinHash and MinHashLSH, given the same shingles, must remove the same
documents, with and without a threshold. Rules: every rule of datatrove's Gopher filters, with words
that white space separates, must remove the same documents for the same reason.
Usage: cleaning_parity.py [--documents 600] [--seed 1]    environment: MEGATRON
"""
import argparse
import json
import pydoc_data.topics
import random
import re
import string
import struct
import sys
import tempfile
import unicodedata
from collections import Counter
from pathlib import Path

import xxhash
from datasketch import MinHash, MinHashLSH
from datatrove.data import Document
from datatrove.pipeline.filters import gopher_quality_filter, gopher_repetition_filter

from program import run
from report import Report

FLAGS = ["--tokenizer-type", "ByteTokenizer", "--workers", 3]


def paragraphs():
    text = "\n\n".join(pydoc_data.topics.topics.values())
    return [part.strip() for part in re.split(r"\n{2,}", text) if len(part.split()) > 8]


def near_duplicate_corpus(rng, count):
    """Paragraphs, of which most are earlier ones with some words replaced."""
    sources, documents = paragraphs(), []
    for _ in range(count):
        words = rng.choice(sources).split()
        rate = rng.choice([0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.5])
        changed = [str(rng.randrange(10**6)) if rng.random() < rate else word for word in words]
        documents.append(" ".join(changed).upper() if rng.random() < 0.1 else " ".join(changed))
    return documents + ["", "?!", "one two", "One, two!"]


def strange_corpus(rng, count):
    """Texts that break one rule or another: repeated words, lines and paragraphs, bullets, symbols,
    digits, other line ends and scripts."""
    sources, documents = paragraphs(), []
    for _ in range(count):
        parts = rng.sample(sources, rng.randrange(1, 12))
        text = rng.choice(["\n\n", "\n", "\n\n\n", "\r\n", "\u2028", "\x0b"]).join(parts)
        words = text.split()
        kind = rng.randrange(10)
        if kind == 0:
            start = rng.randrange(len(words))
            again = words[start : start + rng.randrange(1, 12)] * rng.randrange(1, 30)
            text = " ".join(words[:start] + again + words[start:])
        elif kind == 1:
            lines = text.split("\n")
            text = "\n".join(rng.choices(lines, k=len(lines) * 2))
        elif kind == 2:
            text = "\n\n".join(rng.choices(parts, k=len(parts) * 2))
        elif kind == 3:
            text = "\n".join(rng.choice(["- ", "\u2022", " -", ""]) + line for line in parts)
        elif kind == 4:
            text = "\n".join(line + rng.choice(["...", "\u2026 ", ""]) for line in parts)
        elif kind == 5:
            text = "".join(rng.choice(["#", "...", c, c, c, c]) for c in text)
        elif kind == 6:
            text = " ".join(word if rng.random() < 0.7 else "12" for word in words)
        elif kind == 7:
            text = " ".join(word for word in words if len(word) > 3)
        elif kind == 8:
            text = "".join(chr(0x430 + ord(c) % 32) if c.isalpha() else c for c in text)
        documents.append(text)
    return documents


def removed_documents(documents, flags):
    """Returns number and rule of the documents that the program removes."""
    with tempfile.TemporaryDirectory() as folder:
        source, removed = Path(folder, "in.jsonl"), Path(folder, "removed.jsonl")
        source.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        arguments = ["--input", source, "--output-prefix", Path(folder, "out"), *FLAGS]
        run("preprocess-data", *arguments, *flags, "--removed-file", removed)
        lines = [json.loads(line) for line in removed.read_text().split("\n") if line]
    for line in lines:
        number = int(line["source"].rpartition(":")[2]) - 1
        assert line["text"] == documents[number]
    return [(int(line["source"].rpartition(":")[2]) - 1, line) for line in lines]


def shingles(text, size):
    words = re.findall(r"[^\W_]+", text.lower())
    words = [xxhash.xxh3_64_intdigest(word.encode()) for word in words]
    size = min(size, len(words))
    starts = range(len(words) - size + 1) if words else ()
    parts = (struct.pack(f"{size}Q", *words[i : i + size]) for i in starts)
    return {xxhash.xxh3_64_intdigest(part) & 0xFFFFFFFF for part in parts}


def duplicates_by_datasketch(documents, ngrams, bands, rows, seed, threshold):
    lsh = MinHashLSH(params=(bands, rows), num_perm=bands * rows)
    signatures, removed, kept = {}, [], 0
    for number, text in enumerate(documents):
        values = shingles(text, ngrams)
        signature = MinHash(num_perm=bands * rows, seed=seed, hashfunc=int)
        if values:
            signature.update_batch(values)
            found = [other for other in lsh.query(signature)]
            similar = [i for i in found if signatures[i].jaccard(signature) >= threshold]
            if similar:
                removed.append((number, min(similar)))
                continue
            lsh.insert(kept, signature)
            signatures[kept] = signature
        kept += 1
    return removed


def check_duplicates(report, rng, count):
    documents = near_duplicate_corpus(rng, count)
    for ngrams, bands, rows, seed, threshold in (
        (5, 14, 8, 1, 0),
        (3, 20, 13, 42, 0),
        (5, 9, 13, 7, 0),
        (1, 50, 4, 1, 0.8),
        (5, 25, 3, 3, 0.7),
    ):
        theirs = duplicates_by_datasketch(documents, ngrams, bands, rows, seed, threshold)
        flags = ["--minhash-dedup", "--minhash-ngrams", ngrams, "--minhash-bands", bands]
        flags += ["--minhash-rows", rows, "--minhash-seed", seed]
        flags += ["--minhash-threshold", threshold] if threshold else []
        removed = removed_documents(documents, flags)
        ours = [(number, line["duplicate_of"]) for number, line in removed]
        name = f"near duplicates of {ngrams}-grams, {bands} x {rows}, threshold {threshold}"
        detail = f"{len(theirs)} of {len(documents)} documents"
        if ours != theirs:
            differ = sorted(set(ours) ^ set(theirs))
            detail += f", {len(differ)} differ: {differ[:6]}"
        report.result(name, ours == theirs and len(theirs) > 5, detail)


def datatrove_rules():
    """Flags of ours and the filter of theirs that has this rule alone."""

    def split(text, language):
        return text.split()

    for module in (gopher_quality_filter, gopher_repetition_filter):
        module.split_into_words = split
    gopher_quality_filter.PUNCTUATION_SET = {
        chr(c)
        for c in range(sys.maxunicode + 1)
        if unicodedata.category(chr(c))[0] == "P" or chr(c) in string.punctuation
    }
    quality = dict(
        min_doc_words=50,
        max_doc_words=300,
        min_avg_word_length=4,
        max_avg_word_length=5.5,
        max_symbol_word_ratio=0.1,
        max_bullet_lines_ratio=0.2,
        max_ellipsis_lines_ratio=0.3,
        max_non_alpha_words_ratio=0.8,
        min_stop_words=6,
    )
    for name, bound in quality.items():
        bounds = {other: None for other in quality} | {name: bound}
        ours = "min_alpha_words_ratio" if name == "max_non_alpha_words_ratio" else name
        yield ours, bound, gopher_quality_filter.GopherQualityFilter(**bounds)
    repetition = dict(
        dup_line_frac=0.1,
        dup_para_frac=0.1,
        dup_line_char_frac=0.1,
        dup_para_char_frac=0.1,
    )
    for name, bound in repetition.items():
        bounds = {other: None for other in repetition} | {name: bound}
        bounds |= dict(top_n_grams=(), dup_n_grams=())
        yield f"max_{name}", bound, gopher_repetition_filter.GopherRepetitionFilter(**bounds)
    for kind, sizes, bound in (("top", (2, 3, 4), 0.03), ("dup", range(5, 11), 0.1)):
        for size in sizes:
            bounds = {other: None for other in repetition} | dict(top_n_grams=(), dup_n_grams=())
            bounds[f"{kind}_n_grams"] = ((size, bound),)
            filter = gopher_repetition_filter.GopherRepetitionFilter(**bounds)
            yield f"max_{kind}_{size}_gram_frac", bound, filter


def check_rules(report, rng, count):
    documents = strange_corpus(rng, count)
    for name, bound, filter in datatrove_rules():
        with report.guard(name):
            theirs = [
                number
                for number, text in enumerate(documents)
                if filter.filter(Document(text=text, id=str(number))) is not True
            ]
            removed = removed_documents(documents, [f"--{name.replace('_', '-')}", bound])
            ours = [number for number, line in removed]
            differ = sorted(set(ours) ^ set(theirs))
            detail = f"{len(theirs)} of {len(documents)} documents"
            detail += f", differ: {differ[:6]}" if differ else ""
            report.result(name, not differ and 0 < len(theirs) < len(documents), detail)


def check_gopher(report, rng, count):
    """All of Gopher's rules at once: which documents go, and the first rule that they break."""
    documents = strange_corpus(rng, count)
    filters = [
        gopher_quality_filter.GopherQualityFilter(),
        gopher_repetition_filter.GopherRepetitionFilter(),
    ]

    def goes(text):
        return any(filter.filter(Document(text=text, id="0")) is not True for filter in filters)

    theirs = [number for number, text in enumerate(documents) if goes(text)]
    removed = removed_documents(documents, ["--gopher-rules"])
    ours = [number for number, line in removed]
    rules = Counter(line["rule"] for _, line in removed)
    report.result("all of Gopher's rules", ours == theirs and len(rules) > 8, str(dict(rules)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng, report = random.Random(arguments.seed), Report()
    with report.guard("near duplicates"):
        check_duplicates(report, rng, arguments.documents)
    check_rules(report, rng, arguments.documents)
    with report.guard("Gopher"):
        check_gopher(report, rng, arguments.documents)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
