"""The tokens of a C++ source, and the declarations that hold them.

This is no parser of C++: it follows brackets, enters namespaces and classes, and takes what else
stands there for declarations of functions, variables and macros. Bodies of functions are not read,
so a lambda or a local class belongs to its function.
"""

import dataclasses
import pathlib
import re

TOKEN = re.compile(
    r"""
    (?P<space> (?: \s | \\\n | //[^\n]* | /\*.*?\*/ )+ )
  | (?P<directive> \#[ \t]* (?: define | include | if | ifn?def | el\w+ | endif | pragma | undef
                              | error | warning ) \b (?: \\\n | /\*.*?\*/ | //[^\n]* | [^\n] )* )
  | (?: u8 | [uUL] )? R"(?P<end> [^(\s]* )\( .*? \)(?P=end)" \w*
  | (?: u8 | [uUL] )? (?: "(?: \\. | [^"\\\n] )*" | '(?: \\. | [^'\\\n] )+' ) \w*
  | \.?\d (?: [eEpP][+-] | '?[\w.] )*
  | [^\W\d]\w*
  | <=> | <<= | >>= | ->\*? | \.\.\. | :: | \+\+ | -- | << | && | \|\| | [-+*/%&|^!=<>]=
  | .
    """,  # `>>` stays two tokens, since it may end two lists of template arguments
    re.VERBOSE | re.DOTALL,
)
DEFINE = re.compile(r"#[ \t]*define[ \t]+(\w+)(?=(.*))", re.DOTALL)
WORD = re.compile(r"[^\W\d]\w*")
CLOSING = {"(": ")", "[": "]", "{": "}"}
# The head of a declaration is its text with empty brackets and without arguments of templates.
NAME = r"((?:\w+ :: )*(?:~ )?\w+)"
NAMESPACE = re.compile(r'\bnamespace\b[^=]*$|\bextern "C"$')
CLASS = re.compile(
    r"\b(?:class|struct|union|enum)(?: \[\]| \w+ \(\)| class)*(?: (?!final)" + NAME + r")?"
    r"(?: final)?(?: : .*)?$"
)
OPERATOR = re.compile(r"(?:^| )((?:\w+ :: )*operator\b.*?) \(\)")
NO_FUNCTION = r"(?!(?:alignas|decltype|explicit|noexcept|requires)\b|__)"
FUNCTION = re.compile(r"(?:^| )" + NO_FUNCTION + NAME + r" \(\)")
VARIABLE = re.compile(NAME + r"(?: \[\])* (?:[=;:,]|\{\})(?!:)")
NEXT_VARIABLE = re.compile(r", (?:[*&] )*(\w+)(?: \[\])* (?:[=;,]|\{\})")
# After a closing brace they continue with its declaration: `a{1}, b{2};`, `C() : d_{3} {}`.
CONTINUATIONS = set(";,{(.|+-*/")


def tokens_of(text: str) -> list[str]:
    return [m.group() for m in TOKEN.finditer(text) if m.lastgroup not in ("space", "directive")]


def names_of(head: str) -> list[str]:
    """Returns the names that a declaration gives. It is neither a class nor a namespace."""
    if name := OPERATOR.search(head) or FUNCTION.search(head.partition(" = ")[0]):
        return [re.sub(r"\boperator$", "operator()", name.group(1))]
    first = VARIABLE.search(head)
    return [m.group(1) for m in (first, *NEXT_VARIABLE.finditer(head, first.end(1))) if first]


class Source:
    """A file. Raises ValueError when its brackets do not match."""

    def __init__(self, text: str):
        self.tokens: list[str] = []
        self.begins: list[int] = []  # of the tokens, in characters
        self.declarations: list[tuple[str, int, int]] = []  # name, and the range of its tokens
        macros = self.add_tokens(text, 0, len(text))
        self.ends = self.match_brackets()
        self.read_scope(0, "")
        for macro in macros:
            first = len(self.tokens)
            self.add_tokens(text, macro.end(), macro.end(2))
            self.declarations.append((macro.group(1), first, len(self.tokens)))

    def add_tokens(self, text: str, begin: int, end: int) -> list[re.Match]:
        """Returns the macros that the text defines."""
        macros = []
        for match in TOKEN.finditer(text, begin, end):
            if match.lastgroup == "directive":
                macros.append(DEFINE.match(text, match.start(), match.end()))
            elif match.lastgroup != "space":
                self.tokens.append(match.group())
                self.begins.append(match.start())
        return [macro for macro in macros if macro]

    def match_brackets(self) -> dict[int, int]:
        """Returns the index after the closing bracket for that of each opening one."""
        ends, opened = {}, []
        for i, token in enumerate(self.tokens):
            if token in CLOSING:
                opened.append(i)
            elif token in (")", "]", "}"):
                if not opened or CLOSING[self.tokens[opened[-1]]] != token:
                    raise ValueError(f"the bracket {token} closes nothing")
                ends[opened.pop()] = i + 1
        if opened:
            raise ValueError(f"the bracket {self.tokens[opened[-1]]} is not closed")
        return ends

    def read_scope(self, i: int, path: str) -> None:
        """Reads declarations up to the brace that closes their scope."""
        while i < len(self.tokens) and self.tokens[i] != "}":
            i = self.read_declaration(i, path)

    def read_declaration(self, first: int, path: str) -> int:
        """Reads a declaration and all declarations in it. Returns the index after it."""
        head, angles, names, i = [], 0, None, first
        while i < len(self.tokens) and self.tokens[i] != "}":
            token = self.tokens[i]
            i += 1
            if token == "<" and "=" not in head and WORD.match(self.tokens[i - 2]):
                angles += self.tokens[i - 2] != "operator"
            elif token == ">" and angles:
                angles -= 1
                continue
            if token in CLOSING:
                if token == "{":
                    names = self.read_block(i, " ".join(head), path) if names is None else names
                i = self.ends[i - 1]
            if not angles:
                head.append(token + CLOSING.get(token, ""))
            next_token = self.tokens[i : i + 1]
            if token == ";" or token == "{" and not CONTINUATIONS.issuperset(next_token):
                break
            if token == ":" and head[0] in ("public", "private", "protected"):
                return i
        for name in names_of(" ".join(head)) if names is None else names:
            self.declarations.append(((path + name).replace(" ", ""), first, i))
        return i

    def read_block(self, i: int, head: str, path: str) -> list[str] | None:
        """Reads the block of a namespace or class. Returns its names, or None for other blocks."""
        if NAMESPACE.search(head):
            self.read_scope(i, path)
            return []
        if not (found := CLASS.search(head)):
            return None
        name = found.group(1)
        self.read_scope(i, path + name + "::" if name else path)
        return [name] if name else []

    def find(self, name: str, wanted: list[str]) -> dict[tuple[int, int], str]:
        """Returns where tokens stand in declarations of a name, or in any if the name is empty.

        Keys are ranges of characters, values the innermost declarations.
        """
        places = {}
        for declared, first, last in self.declarations:  # inner ones first
            if name and not ("::" + declared).endswith("::" + name.replace(" ", "")):
                continue
            for i in range(first, last - len(wanted) + 1):
                if self.tokens[i : i + len(wanted)] == wanted:
                    end = i + len(wanted) - 1
                    place = self.begins[i], self.begins[end] + len(self.tokens[end])
                    places.setdefault(place, declared)
        return places


@dataclasses.dataclass(frozen=True)
class Place:
    """A range of characters of a file, whose name is relative to the tree."""

    file: str
    begin: int
    end: int


class Tree:
    """All sources in src/. A file is read token by token when a search needs it."""

    def __init__(self, root: pathlib.Path):
        self.texts = {
            str(path.relative_to(root)): path.read_text(encoding="utf-8")
            for path in sorted((root / "src").rglob("*"))
            if path.suffix in (".cpp", ".cu", ".cuh", ".h")
        }
        self.files_with: dict[str, list[str]] = {}
        for file, text in self.texts.items():
            for word in set(re.findall(r"\w+", text)):
                self.files_with.setdefault(word, []).append(file)
        self.sources: dict[str, Source] = {}

    def source(self, file: str) -> Source:
        if file not in self.sources:
            try:
                self.sources[file] = Source(self.texts[file])
            except ValueError as error:
                raise ValueError(f"{file}: {error}") from error
        return self.sources[file]

    def find(self, name: str, code: str) -> dict[Place, str]:
        """Returns where the tokens of `code` stand, as Source.find() does."""
        wanted = tokens_of(code)
        words = re.findall(r"\w+", name)
        files = self.files_with.get(words[-1], []) if words else self.texts
        return {
            Place(file, *characters): declared
            for file in files
            if wanted and all(token in self.texts[file] for token in wanted)
            for characters, declared in self.source(file).find(name, wanted).items()
        }
