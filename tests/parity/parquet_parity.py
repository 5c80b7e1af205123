"""Compares datasets that preprocess-data makes of Parquet files with those of the same rows as JSON
lines, byte for byte.

pyarrow writes the files: every codec it has, both versions of data pages, dictionaries, plain and
delta encodings, small pages and row groups, strings, large strings, dictionaries and lists. Null
values, absent columns and damaged files must be errors, never other data.
Usage: parquet_parity.py [--rows 3000] [--seed 1]
Environment: MEGATRON, which must have lib/libmegatron_arrow.so (make build ARROW=1)
"""
import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from program import MEGATRON, ProgramError, run
from report import Report

FLAGS = ["--tokenizer-type", "ByteTokenizer", "--json-keys", "text", "other", "--workers", 3]
PIECES = ["word ", "\u00e4\u00f6", "\u4e1c\u4eac", '"', "\\", "\n", "\t", "\x00", "\x1f"]
PIECES += ["\U0001f600", "a" * 500]


def random_rows(rng, count):
    def text():
        return "".join(rng.choices(PIECES, k=rng.randrange(1, 30)))

    return [(text(), text() if rng.random() < 0.5 else "the same") for _ in range(count)]


def datasets(folder, source):
    prefix = Path(folder, "out")
    run("preprocess-data", "--input", source, "--output-prefix", prefix, *FLAGS)
    names = [f"out_{key}_document.{kind}" for key in ("text", "other") for kind in ("bin", "idx")]
    return [Path(folder, name).read_bytes() for name in names]


def variants():
    """Names, types of the column `text`, and how the file is written."""
    for codec in ("none", "snappy", "gzip", "brotli", "lz4", "zstd"):
        yield codec, pa.string(), dict(compression=codec)
    yield "pages of version 2", pa.string(), dict(data_page_version="2.0", compression="zstd")
    yield "small pages", pa.string(), dict(data_page_size=512, row_group_size=100)
    yield "large row groups", pa.string(), dict(row_group_size=10**6)
    yield "no dictionary", pa.string(), dict(use_dictionary=False)
    for encoding in ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        columns = dict(text=encoding, other=encoding)
        yield encoding, pa.string(), dict(use_dictionary=False, column_encoding=columns)
    yield "large strings", pa.large_string(), {}
    yield "binary", pa.binary(), {}
    yield "dictionary", pa.dictionary(pa.int32(), pa.string()), {}
    yield "no Arrow schema", pa.string(), dict(store_schema=False)


def check_variants(report, rng, folder, count):
    rows = random_rows(rng, count)
    lines = Path(folder, "rows.jsonl")
    lines.write_text(
        "".join(json.dumps({"text": text, "other": other}) + "\n" for text, other in rows)
    )
    wanted = datasets(folder, lines)
    for name, kind, options in variants():
        with report.guard(name):
            file = Path(folder, "rows.parquet")
            text = pa.array([row[0] for row in rows], pa.string())
            if pa.types.is_dictionary(kind):
                text = text.dictionary_encode()
            else:
                text = text.cast(kind)
            columns = dict(
                number=pa.array(range(count)), text=text, other=pa.array([row[1] for row in rows])
            )
            pq.write_table(pa.table(columns), file, **options)
            report.result(name, datasets(folder, file) == wanted)


def check_lists(report, rng, folder):
    lists = [[text for text, _ in random_rows(rng, rng.randrange(5))] for _ in range(500)]
    lines, file = Path(folder, "lists.jsonl"), Path(folder, "lists.parquet")
    lines.write_text(
        "".join(json.dumps({"text": texts, "other": "x"}) + "\n" for texts in lists)
    )
    table = pa.table({"text": pa.array(lists, pa.list_(pa.string())), "other": ["x"] * len(lists)})
    pq.write_table(table, file, row_group_size=77)
    report.result("lists of strings", datasets(folder, file) == datasets(folder, lines))


def check_errors(report, rng, folder):
    file = Path(folder, "errors.parquet")

    def said(*flags):
        arguments = ["--input", file, "--output-prefix", Path(folder, "bad"), *FLAGS, *flags]
        return run("preprocess-data", *arguments, expect=2).stderr

    pq.write_table(pa.table({"text": ["a", None], "other": ["b", "c"]}), file)
    report.result("null", "errors.parquet:2: field 'text' must be a string" in said())
    pq.write_table(pa.table({"text": ["a"], "number": [1]}), file)
    report.result("absent column", "no column 'other'; there are text, number" in said())
    pq.write_table(pa.table({"text": ["a"], "other": [1]}), file)
    report.result("column of numbers", "a column of type int64 is no text" in said())

    rows = random_rows(rng, 300)
    columns = dict(text=[row[0] for row in rows], other=[row[1] for row in rows])
    pq.write_table(pa.table(columns), file, row_group_size=50, write_page_checksum=True)
    whole = file.read_bytes()
    endings = []
    for _ in range(60):
        damaged = bytearray(whole)
        if rng.random() < 0.3:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            for _ in range(rng.randrange(1, 20)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        file.write_bytes(damaged)
        arguments = ["--input", file, "--output-prefix", Path(folder, "bad"), *FLAGS]
        try:
            run("preprocess-data", *arguments, expect=2)
            endings.append(2)
        except ProgramError as error:
            endings.append(0 if str(error).startswith("exit 0") else str(error))
    crashes = [ending for ending in endings if ending not in (0, 2)]
    report.result("damaged files end with an error", not crashes and 2 in endings, str(crashes[:1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not Path(MEGATRON).parent.with_name("lib").joinpath("libmegatron_arrow.so").exists():
        print("note Parquet is not compared: make build ARROW=1 builds what reads it")
        return 0
    rng, report = random.Random(arguments.seed), Report()
    with tempfile.TemporaryDirectory() as folder:
        check_variants(report, rng, folder, arguments.rows)
        with report.guard("lists"):
            check_lists(report, rng, folder)
        with report.guard("errors"):
            check_errors(report, rng, folder)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
