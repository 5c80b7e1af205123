"""Writes tests/datasets/fixtures/punkt.json: the sentences that nltk's Punkt makes.

    python tests/parity/make_punkt_fixtures.py
"""
import json
import random
from pathlib import Path

from nltk.tokenize.punkt import PunktParameters, PunktTrainer

from punkt_parity import damaged, sentences

TESTS = Path(__file__).resolve().parents[1]
TEXTS = (
    "Dr. A. Weber met Prof. Lee at 5 p.m. in Bonn. They spoke of No. 7 of the series, vol. 3, and "
    "of other things. The talk was long! Was it good? It was (he said). She agreed: \u201cIt "
    "was.\u201d Then they left.",
    "The committee met on Oct. 12. The 3. draft was read. e.g. the first part, i.e. the part on "
    "taxes, was changed. Mr. Brown asked for more... The others did not. He left; they stayed.",
    "In the U.S. the law is old. In the U.K. it is older. The firm (Smith & Co. Ltd.) pays 3.5 % "
    "-- or 1,000. That is all.\nA new line. . . . and an end.\n\nA new paragraph begins here. The "
    "year 1999. Events followed. J. Bach wrote it. vs. others he was first.",
    "Das Haus Nr. 5 ist alt. Es wurde 1890 gebaut, d.h. vor langer Zeit. \u00dcber den Preis "
    "(ca. 300 Mio. Euro) sprach niemand. \u00abWirklich?\u00bb fragte sie. \u00abJa.\u00bb",
)


def main():
    draw = random.Random(5)
    corpus = "\n\n".join(draw.choice(TEXTS) for _ in range(60))
    # A pair that is seen once is no collocation, however likely.
    corpus += "\n\nIt was Q. Zeta who came. And Zeta met Q here once."
    trainer = PunktTrainer()
    trainer.train(corpus)
    learned = trainer.get_params()
    given = PunktParameters()
    given.abbrev_types = {"dr", "prof", "e.g", "i.e", "u.s", "co", "ltd", "nr", "ca", "d.h", "x"}
    given.sent_starters = {"the", "they", "in", "a"}
    given.collocations = {("##number##", "draft"), ("j", "bach")}
    for word, bits in (("the", 46), ("he", 18), ("it", 112), ("others", 32), ("left", 4)):
        given.ortho_context[word] = bits
    tables = lambda p: dict(
        abbreviations=sorted(p.abbrev_types),
        starters=sorted(p.sent_starters),
        collocations=sorted("\t".join(pair) for pair in p.collocations),
        contexts={word: bits for word, bits in sorted(p.ortho_context.items()) if bits},
    )
    cases = []
    for number in range(120):
        text = damaged(draw, draw.choice(TEXTS))
        parameters = (learned, given)[number % 2]
        split = lambda keep: [s.decode("utf-8") for s in sentences(parameters, text, keep)]
        cases.append(dict(text=text, sentences=split(False), newlines_kept=split(True)))
    fixture = dict(learned=tables(learned), given=tables(given), cases=cases)
    with open(TESTS / "datasets/fixtures/punkt.json", "w", encoding="utf-8") as file:
        json.dump(fixture, file, indent=0)
    print({name: len(value) for name, value in tables(learned).items()})


if __name__ == "__main__":
    main()
