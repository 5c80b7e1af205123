"""Writes fixtures/regex.jsonl and fixtures/normalization.jsonl with the real `tokenizers` package.

regex.jsonl holds one {"pattern", "text", "left"} a line: the pieces of the text that
pre_tokenizers.Split(Regex(pattern), "removed") leaves, for random classes in classes and
intersections, and for published patterns with them. normalization.jsonl holds one {"text", "nfc",
"nfd", "nfkc", "nfkd"} a line. Usage: python make_regex_fixtures.py [FACTOR] (from anywhere; FACTOR
times as many lines, 1 for the fixtures)
"""
import json
import pathlib
import random
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
PUBLISHED = [
    r"\d{1,3}(?=(?:\d{3})*\b)",  # SuperBPE
    r"\b", r"\B", r"a{,3}", r"\pL", r"\p{Word}+", r"\P{Punct}", r"[[:punct:]]+\b",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",  # BLOOM
    r"[\p{L}\p{M}&&[^\p{Han}]]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"  # Kimi K2
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
]
MEMBERS = ["a", "b", "z", "A", "0", " ", "-", "^", "é", "日", "a-f", "A-Z", "0-9", r"\d", r"\s",
           r"\S", r"\D", r"\w", r"\W", r"\h", r"\H", r"\p{L}", r"\P{L}", r"\p{^N}", r"\p{Han}",
           r"\p{M}", r"\n", r"\]", r"\[", "|", "(", ".", "[:alpha:]", "&", r"\u0416", "[:punct:]",
           "[:^upper:]", "[:lower:]", "[:alnum:]", "[:print:]", r"\p{Alpha}", r"\P{Punct}",
           r"\p{Word}", r"\p{Uppercase}"]
# In Oniguruma (?i) adds other cases to these, in PCRE2 it does not.
CASES = ["upper:]", "lower:]", "Uppercase"]
CHARACTERS = "abcdefzABCZ0123 \n-^[]&|().,éßЖжΣ日本語ñ\u0301\u0327\u3042٣_…\U0001f600\u00b2⁷€→ⅧⓐǅªpL,"
MARKS = [chr(c) for c in (0x300, 0x301, 0x307, 0x323, 0x327, 0x328, 0x334, 0x345, 0x5B0, 0x64B,
                          0x93C, 0x1DCE, 0x3099, 0x309A, 0x20D0, 0x1D165, 0x1D16D)]
OTHERS = ([chr(c) for c in range(0x20, 0x7F)] + [chr(c) for c in range(0xC0, 0x250)] +
          [chr(c) for c in range(0x1E00, 0x2000)] + [chr(c) for c in range(0xFB00, 0xFB50)])
HANGUL = [chr(c) for c in (0x1100, 0x1112, 0x1161, 0x1175, 0x11A7, 0x11A8, 0x11C2, 0xAC00, 0xAC01,
                           0xD7A3, 0x3131)]
EXCLUDED = [chr(c) for c in (0x340, 0x341, 0x343, 0x344, 0x374, 0x37E, 0x387, 0x958, 0x95F, 0x9DC,
                             0x9DF, 0xA33, 0xB5C, 0xF43, 0xF73, 0xF76, 0xF78, 0xF81, 0x1F71,
                             0x2126, 0x212A, 0x2ADC, 0xFB1D, 0xFB1F, 0x1D15E, 0x2F800)]


def random_class(rng, depth):
    out = "[" + rng.choice(["", "", "^"])
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.3 and depth < 3:
            out += random_class(rng, depth + 1)
        elif kind < 0.45:
            out += "&&" + rng.choice(MEMBERS)
        else:
            out += rng.choice(MEMBERS)
    return out + "]"


def is_ambiguous(pattern):
    """Returns whether the pattern has a range that ends or begins with a class, or a range whose
    end is also a sign: our translation refuses the first, and PCRE2 or Oniguruma the others."""
    return any(sign in pattern for sign in ("-[", "-\\", "--", "-&")) or "]-" in pattern


def random_patterns(rng, count):
    while count > 0:
        pattern = random_class(rng, 0)
        if not any(name in pattern for name in CASES):
            pattern = rng.choice(["", "(?i)"]) + pattern
        pattern += rng.choice(["", "+", "{2}", "?x"])
        if is_ambiguous(pattern):
            continue
        try:
            pre_tokenizers.Split(Regex(pattern), "removed")
        except Exception:
            continue
        count -= 1
        yield pattern


def write_regex(path, rng, count):
    with open(path, "w") as file:
        for pattern in PUBLISHED * 5 + list(random_patterns(rng, count)):
            text = "".join(rng.choice(CHARACTERS) for _ in range(40))
            split = pre_tokenizers.Split(Regex(pattern), "removed")
            left = [piece for piece, _ in split.pre_tokenize_str(text)]
            file.write(json.dumps({"pattern": pattern, "text": text, "left": left}) + "\n")


def random_text(rng):
    kinds = rng.sample([MARKS, OTHERS, HANGUL, EXCLUDED, "aeiouAEIOU"], 2) + [MARKS]
    if rng.random() < 0.3:
        kinds.append([chr(c) for c in range(0xA0, 0x30000) if not 0xD800 <= c < 0xE000])
    return "".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 30)))


def write_normalization(path, rng, count):
    forms = {"nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(),
             "nfkd": normalizers.NFKD()}
    with open(path, "w") as file:
        for _ in range(count):
            text = random_text(rng)
            case = {"text": text}
            for name, normalizer in forms.items():
                case[name] = normalizer.normalize_str(text)
            file.write(json.dumps(case) + "\n")


def main():
    factor = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    write_regex(HERE / "fixtures" / "regex.jsonl", random.Random(1), 60 * factor)
    write_normalization(HERE / "fixtures" / "normalization.jsonl", random.Random(2), 120 * factor)


if __name__ == "__main__":
    main()
