"""Compares `dataset show SHARDS` with the webdataset package.

Random archives in each format of Python's tarfile: the same samples, keys, fields and sizes in the
same order. Random patterns of names: the same lists as braceexpand, on which the package relies.
Usage: webdataset_parity.py [--cases 12] [--seed 1]    environment: MEGATRON
"""
import argparse
import io
import json
import random
import sys
import tarfile
import tempfile

from braceexpand import braceexpand
from program import run
from report import Report
from webdataset.tariterators import group_by_keys, tar_file_expander

FORMATS = (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT)
FIELDS = ("jpg", "JPG", "txt", "json", "seg.png", "cls", "tar.gz")
FOLDERS = ("", "./", "a/", "a.b/", "deep/" * 30, "übung/", "__meta__/", ".hidden/")


def write_shard(draw, path, number):
    with tarfile.open(path, "w", format=FORMATS[number % 3]) as tar:
        for sample in range(draw.randint(0, 12)):
            stem = draw.choice(FOLDERS) + draw.choice(("", "x")) + f"{number}-{sample}"
            fields = {name.lower(): name for name in draw.sample(FIELDS, draw.randint(1, 4))}
            for field in fields.values():
                info = tarfile.TarInfo(f"{stem}.{field}")
                info.size = draw.choice((0, 1, 511, 512, 513, 2000))
                tar.addfile(info, io.BytesIO(b"x" * info.size))
            if draw.random() < 0.3:
                other = tarfile.TarInfo(draw.choice(("README", "folder", ".x", "__index__")))
                other.type = draw.choice((tarfile.DIRTYPE, tarfile.REGTYPE))
                tar.addfile(other)


def their_samples(paths):
    for path in paths:
        with open(path, "rb") as stream:
            for sample in group_by_keys(tar_file_expander([dict(url=path, stream=stream)])):
                fields = {k: len(v) for k, v in sample.items() if not k.startswith("__")}
                yield dict(key=sample["__key__"], shard=path, fields=fields)


def check_shards(report, draw, number):
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/s-{i:02}.tar" for i in range(3)]
        for i, path in enumerate(paths):
            write_shard(draw, path, number + i)
        theirs = list(their_samples(paths))
        if not theirs:
            return
        shown = run("dataset", "show", folder + "/s-{00..02}.tar", "--count", len(theirs)).stdout
        ours = [json.loads(line) for line in shown.splitlines()]
        for sample in ours:
            del sample["index"]
        report.result(f"shards {number}: {len(theirs)} samples", ours == theirs)


def random_pattern(draw):
    parts = []
    for _ in range(draw.randint(1, 4)):
        first, last, width = draw.randint(0, 30), draw.randint(0, 30), draw.randint(1, 3)
        parts.append(
            draw.choice(
                (
                    "name-",
                    f"{{{first:0{width}}..{last:0{width}}}}",
                    f"{{{first}..{last}..{draw.randint(1, 5)}}}",
                    "{a,b,}",
                    "{x,{1..3}-y}",
                )
            )
        )
    return "".join(parts)


def check_names(report, draw):
    """The names show in the error about the first shard that does not exist, one at a time, so the
    archives are made empty and `info` counts them."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(8):
            pattern = random_pattern(draw)
            names = list(braceexpand(pattern))
            for name in set(names):
                with tarfile.open(f"{folder}/{number}{name}.tar", "w"):
                    pass
            told = run("dataset", "info", f"{folder}/{number}{pattern}.tar").stdout
            report.result(f"names {pattern}", told.startswith(f"shards: {len(names)}\n"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report, draw = Report(), random.Random(options.seed)
    for number in range(options.cases):
        with report.guard(f"shards {number}"):
            check_shards(report, draw, number)
    with report.guard("names"):
        check_names(report, draw)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
