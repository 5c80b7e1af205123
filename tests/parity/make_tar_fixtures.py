"""Writes tests/datasets/fixtures/shards/*.tar with Python's tarfile, and samples.json: what the
webdataset package reads from each.

    python tests/parity/make_tar_fixtures.py
"""
import io
import json
import tarfile
from pathlib import Path

from webdataset.tariterators import group_by_keys, tar_file_expander

OUTPUT = Path(__file__).resolve().parents[1] / "datasets/fixtures/shards"
LONG = "folder/" * 20 + "x" * 90
FILES = [
    ("__meta__", b"left out"),
    ("./000.JPG", b"\xff\xd8 first"),
    ("./000.txt", "Ein Bild, schön".encode()),
    ("a.b/001.seg.png", b"png"),
    ("a.b/001.json", b'{"n": 1}'),
    ("README", b"no sample"),
    (".hidden.txt", b"no sample"),
    ("q/.hidden.txt", b"a quirk"),
    (LONG + ".txt", b"long"),
    (LONG + ".empty", b""),
    ("übung.cls", b"7"),
    ("000.txt", b"t" * 1500),
]


def write(path, form, files):
    with tarfile.open(path, "w", format=form) as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("000.lnk")
        link.type, link.linkname = tarfile.SYMTYPE, "000.txt"
        tar.addfile(link)


def samples(path):
    with open(path, "rb") as stream:
        source = [dict(url=str(path), stream=stream)]
        return [
            dict(
                key=sample["__key__"],
                fields={k: v.hex() for k, v in sample.items() if not k.startswith("__")},
            )
            for sample in group_by_keys(tar_file_expander(source))
        ]


def main():
    OUTPUT.mkdir(parents=True, exist_ok=True)
    short = [(name, data) for name, data in FILES if len(name.encode()) < 250]
    expected = {}
    for name, form in (("pax", tarfile.PAX_FORMAT), ("gnu", tarfile.GNU_FORMAT)):
        write(OUTPUT / f"{name}.tar", form, FILES)
    write(OUTPUT / "ustar.tar", tarfile.USTAR_FORMAT, short)
    for path in sorted(OUTPUT.glob("*.tar")):
        expected[path.stem] = samples(path)
    (OUTPUT / "samples.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
