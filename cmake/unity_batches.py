#!/usr/bin/env python3
"""Divides the sources of each target into batches that are compiled as one.

Most of the time of a small source goes into its headers and their templates, which a batch pays
once. Sources share a batch only if no name that one of them keeps to itself (in an anonymous
namespace, static, an alias or a macro) occurs in another or is declared in a header of ours that
another includes, so that each means the same as alone. A source stays alone if it defines a macro
before its first #include, for other people's headers, or uses a whole namespace.

Usage: unity_batches.py REQUEST BATCHES INCLUDE_FOLDER...
REQUEST has a line `group<TAB>source` for each source, in the order in which they are tried. The
sources of a batch belong to one group (a target and its compile options). Each batch becomes a file
BATCHES/<group>_<number>.cpp, written only if its text changes; a line `group<TAB>file` is printed
for each, and the source itself where it stays alone.
"""

import os
import pathlib
import re
import sys

MOST_SOURCES = 12
MOST_BYTES = 60_000  # of the sources of a batch: about ten seconds of compiling

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<text>R"(?P<end>\w*)\(.*?\)(?P=end)"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
      | (?P<directive>^\#[^\n]*(?:\\\n[^\n]*)*)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>\d[\w.']*|::|->|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
KEYWORDS = frozenset(
    "alignas auto bool char class const constexpr consteval constinit double enum explicit extern"
    " float inline int long mutable namespace noexcept operator short signed sizeof static struct"
    " template thread_local typename union unsigned using void volatile".split()
)
STAYS_ALONE = re.compile(
    r"\A(?:(?!^#[ ]*include).)*^#[ ]*define|^using namespace", re.MULTILINE | re.DOTALL
)
# Macros whose use at the top of a namespace declares what other sources declare too.
DECLARING_MACRO = re.compile(r"(TYPED_)?TEST(_[A-Z]+)*|INSTANTIATE_\w+|TORCH_\w+")


def tokens_of(text):
    """Yields (kind, token) without comments and white space."""
    for match in TOKEN.finditer(text):
        if match.lastgroup != "skip" and match["skip"] is None:
            kind = next(kind for kind in ("text", "directive", "name", "sign") if match[kind])
            yield kind, match.group()


def split_macros(words):
    """Splits off the uses of macros at the start, which may end without a semicolon. Returns the
    names in them, of which they may make declarations, and the rest."""
    names = set()
    while words[1:2] == ["("] and re.fullmatch(r"[A-Z][A-Z0-9_]*", words[0]):
        depth, end = 0, len(words)
        for at, word in enumerate(words):
            depth += (word == "(") - (word == ")")
            if depth == 0 and at > 0:
                end = at + 1
                break
        if not DECLARING_MACRO.fullmatch(words[0]):
            names.update(word for word in words[2:end] if re.match(r"[A-Za-z_]", word))
        words = words[end:]
    return names, words


def declared_names(words):
    """The names that a declaration at the top of a namespace introduces."""
    while words[:1] == ["template"]:
        depth = 0
        for at, word in enumerate(words[1:], 1):
            depth += (word == "<") - (word == ">")
            if depth == 0:
                words = words[at + 1 :]
                break
        else:
            return set()
    if not words or words[0] == "namespace":  # an alias: the same everywhere, or an error
        return set()
    if words[0] == "using":
        return {words[1]} if words[2:3] == ["="] else {" ".join(words)}
    names, last, depth = set(), None, 0
    is_type = words[0] in ("struct", "class", "enum", "union")
    for word in words:
        depth += (word == "<") - (word == ">")
        if depth > 0:
            continue
        if word in ("(", "=", "[", ":", ",") and last:
            names.add(last)
            if word != "," or is_type:
                break
        elif re.match(r"[A-Za-z_]", word) and word not in KEYWORDS:
            last = word
    if last:
        names.add(last)
    names.update(name for name, sign in zip(words, words[1:]) if sign == "=")  # a = 1, b = 2
    return {name for name in names if not DECLARING_MACRO.fullmatch(name)}


class Names:
    """The names in a file: those that it keeps to itself, those that it declares for others, and
    all that it uses."""

    def __init__(self, text):
        self.private, self.declared, self.used = set(), set(), set()
        statement, scopes, previous = [], [], ""
        for kind, token in tokens_of(text):
            if kind == "directive":
                if macro := re.match(r"#\s*define\s+(\w+)", token):
                    self.private.add(macro[1])
                continue
            if kind == "name" and previous not in (".", "->"):
                self.used.add(token)
            previous = token
            if scopes[-1:] == ["body"]:
                if token == "{":
                    scopes.append("body")
                elif token == "}":
                    scopes.pop()
                continue
            if token not in ("{", "}", ";"):
                statement.append(token)
                continue
            names, words = split_macros(statement)
            self.private |= names
            is_namespace = token == "{" and "namespace" in words[:2]
            if words and not is_namespace:
                hides = "anonymous" in scopes or "static" in words or words[0] == "using"
                (self.private if hides else self.declared).update(declared_names(words))
            if is_namespace:
                scopes.append("anonymous" if words[-1] == "namespace" else "named")
            elif token == "{":
                scopes.append("body")
            elif token == "}" and scopes:
                scopes.pop()
            statement = []


class Headers:
    """What the headers of ours declare that a file includes, directly or through others."""

    def __init__(self, folders):
        self.folders, self.known = folders, {}

    def find(self, header, included_by):
        for folder in (included_by.parent, *self.folders):
            if (folder / header).is_file():
                return folder / header
        return None

    def declared_for(self, path, text):
        names = set()
        for header in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
            if found := self.find(header, path):
                names |= self.declared_by(found)
        return names

    def declared_by(self, header):
        if header not in self.known:
            self.known[header] = set()  # for headers that include each other
            text = header.read_text(encoding="utf-8")
            names = Names(text)
            own = names.declared | names.private
            self.known[header] = own | self.declared_for(header, text)
        return self.known[header]


class Batch:
    def __init__(self, sources=(), is_full=False):
        self.sources, self.is_full = list(sources), is_full
        self.private, self.seen, self.size = set(), set(), 0

    def takes(self, names, seen, size):
        return (
            not self.is_full
            and len(self.sources) < MOST_SOURCES
            and self.size + size <= MOST_BYTES
            and not self.private & seen
            and not names.private & self.seen
        )

    def add(self, source, names, seen, size):
        self.sources.append(source)
        self.private |= names.private
        self.seen |= seen
        self.size += size


def batches_of(sources, headers):
    batches = []
    for source in map(pathlib.Path, sources):
        text = source.read_text(encoding="utf-8")
        if STAYS_ALONE.search(text):
            batches.append(Batch([source], is_full=True))
            continue
        names = Names(text)
        found = (names, names.used | headers.declared_for(source, text), len(text))
        batch = next((batch for batch in batches if batch.takes(*found)), None)
        if batch is None:
            batches.append(batch := Batch())
        batch.add(source, *found)
    return batches


def write_if_changed(path, text):
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main():
    request, folder, *include_folders = map(pathlib.Path, sys.argv[1:])
    headers = Headers(include_folders)
    groups = {}
    for line in request.read_text(encoding="utf-8").splitlines():
        group, _, source = line.partition("\t")
        groups.setdefault(group, []).append(source)
    written = set()
    for group, sources in groups.items():
        for number, batch in enumerate(batches_of(sources, headers), 1):
            if len(batch.sources) == 1:
                print(group, batch.sources[0], sep="\t")
                continue
            path = folder / f"{group}_{number}.cpp"
            # Seen from the folder of the batches, so that the text is the same in every checkout.
            lines = [f'#include "{os.path.relpath(s, folder)}"' for s in batch.sources]
            write_if_changed(path, "\n".join(lines) + "\n")
            written.add(path)
            print(group, path, sep="\t")
    for path in set(folder.glob("*.cpp")) - written:
        path.unlink()


if __name__ == "__main__":
    main()
