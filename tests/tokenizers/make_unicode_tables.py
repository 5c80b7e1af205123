"""Writes src/megatron/tokenizers/unicode_tables.cpp.

The tables come from what the real `tokenizers` package (0.23) does with every code point.
Needs a Python whose unicodedata is 14.0.0 (3.11): the tables hold the differences from that
version.
Usage: python make_unicode_tables.py OUTPUT.cpp
"""
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cf".split()
EVERY = [chr(c) for c in range(0x80, 0x110000) if not 0xD800 <= c < 0xE000]


def matching(pattern):
    """Code points that the package's regular expressions match one by one."""
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    kept = set()
    for word, _ in split.pre_tokenize_str("".join(EVERY)):
        kept.update(word)
    return {ord(c) for c in EVERY if c not in kept}


def runs(points, key=lambda c: 0):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1 and key(c) == key(out[-1][0]):
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def wrap(items):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) > 148:
            lines.append(line)
            line = "   "
        line += " " + item
    return "\n".join(lines + [line])


def table(kind, name, items):
    return f"constexpr {kind} {name}[] = {{\n{wrap([i + ',' for i in items])}\n}};\n"


def range_items(points):
    return [f"{{0x{a:X}, 0x{b:X}}}" for a, b in runs(points)]


def script_ranges():
    """Runs of characters that UnicodeScripts keeps together, numbered by script from 1.

    The space and unassigned characters, which belong to any script, are in none.
    """
    split = pre_tokenizers.UnicodeScripts()
    scripts = [
        c
        for c in [*map(chr, range(0x80)), *EVERY]
        if any(len(split.pre_tokenize_str(other + c)) == 2 for other in "a|")
        or len(split.pre_tokenize_str(c + "|")) + len(split.pre_tokenize_str(c + "a")) == 3
    ]
    words = split.pre_tokenize_str("".join(scripts))
    examples, out = [], []
    for word, _ in words:
        for script, example in enumerate(examples, 1):
            if len(split.pre_tokenize_str(example + word[0])) == 1:
                break
        else:
            examples.append(word[0])
            script = len(examples)
        for first, last in runs({ord(c) for c in word}):
            out.append((first, last, script))
    merged = []
    for first, last, script in sorted(out):
        if merged and merged[-1][1] == first - 1 and merged[-1][2] == script:
            merged[-1] = (merged[-1][0], last, script)
        else:
            merged.append((first, last, script))
    return merged


def main():
    assert unicodedata.unidata_version == "14.0.0", "run with Python 3.11"
    category = {}
    for name in CATEGORIES:
        for c in matching(rf"\p{{{name}}}"):
            if unicodedata.category(chr(c)) != name:
                category[c] = name
    han = matching(r"\p{Han}") & set(category)
    assigned = [
        f'{{0x{a:X}, 0x{b:X}, "{category[a]}", {"true" if a in han else "false"}}}'
        for a, b in runs(category, key=lambda c: (category[c], c in han))
    ]

    unknown = set(category) | {0x11930, 0x11935}
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        normalizer = getattr(normalizers, form)()
        for ch in EVERY:
            for text in (ch, "a" + ch + "\u0334", "a\u0301" + ch, "a\u0323" + ch + "\u0301"):
                if normalizer.normalize_str(text) != unicodedata.normalize(form, text):
                    unknown.add(ord(ch))
                    break

    strip = normalizers.StripAccents()
    marks = [ord(c) for c in EVERY if strip.normalize_str(c) == ""]
    remove = pre_tokenizers.Punctuation("removed")
    ascii_too = [chr(c) for c in range(0x80)] + EVERY
    punctuation = [ord(c) for c in ascii_too if not remove.pre_tokenize_str(c)]
    digits = pre_tokenizers.Digits(True)
    numeric = {ord(c) for c in EVERY if len(digits.pre_tokenize_str("a" + c)) == 2} - matching(
        r"\p{N}"
    )

    def removed_by_bert(**options):
        flags = dict.fromkeys(["clean_text", "handle_chinese_chars", "strip_accents", "lowercase"])
        bert = normalizers.BertNormalizer(**{name: False for name in flags} | options)
        return [ord(c) for c in ascii_too if bert.normalize_str(c) == ""]

    controls = removed_by_bert(clean_text=True)
    nonspacing = removed_by_bert(strip_accents=True)
    lower = normalizers.Lowercase()
    pairs = [(ord(c), lower.normalize_str(c)) for c in EVERY if lower.normalize_str(c) != c.lower()]

    body = [
        table("AssignedRange", "kAssigned", assigned),
        table("Range", "kUnknownToNormalizers", range_items(unknown)),
        table("Range", "kCombiningMarks", range_items(marks)),
        table("Range", "kPunctuation", range_items(punctuation)),
        table("Range", "kNumeric", range_items(numeric)),
        table("Range", "kBertControls", range_items(controls)),
        table("Range", "kNonspacingMarks", range_items(nonspacing)),
        table(
            "ScriptRange",
            "kScripts",
            [f"{{0x{a:X}, 0x{b:X}, {script}}}" for a, b, script in script_ranges()],
        ),
        table("LowercasePair", "kLowercase", [f"{{0x{c:X}, 0x{ord(l):X}}}" for c, l in pairs]),
    ]
    functions = [
        ("AssignedRange", "assigned_since_14", "kAssigned"),
        ("Range", "unknown_to_normalizers", "kUnknownToNormalizers"),
        ("Range", "combining_marks", "kCombiningMarks"),
        ("Range", "punctuation", "kPunctuation"),
        ("Range", "numeric_since_16", "kNumeric"),
        ("Range", "bert_controls", "kBertControls"),
        ("Range", "nonspacing_marks", "kNonspacingMarks"),
        ("ScriptRange", "scripts", "kScripts"),
        ("LowercasePair", "lowercase_since_14", "kLowercase"),
    ]
    with open(sys.argv[1], "w") as out:
        out.write(
            "// Generated by tests/tokenizers/make_unicode_tables.py; do not edit.\n"
            "// clang-format off\n"
        )
        out.write(
            '#include "megatron/tokenizers/unicode_tables.h"\n\n'
            "namespace megatron::unicode_tables {\nnamespace {\n\n"
        )
        out.write("\n".join(body))
        out.write("\n}  // namespace\n\n")
        for kind, function, name in functions:
            out.write(f"std::span<const {kind}> {function}() {{ return {name}; }}\n")
        out.write("\n}  // namespace megatron::unicode_tables\n")


if __name__ == "__main__":
    main()
