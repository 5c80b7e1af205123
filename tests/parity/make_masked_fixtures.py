"""Writes tests/datasets/fixtures/masked.json: samples of megatron-core's BERT and T5 datasets.

    python tests/parity/make_masked_fixtures.py
"""
import json
import random
import tempfile
from pathlib import Path

import mcore_cpu
import mcore_data
from masked_parity import SPECIALS, Tokenizer, build_peer, fields

OUTPUT = Path(__file__).resolve().parents[1] / "datasets/fixtures/masked.json"
CASES = (
    dict(kind="bert", seed=1234, mask_prob=0.15, short_seq_prob=0.1, head=True),
    dict(kind="bert", seed=7, mask_prob=0.3, short_seq_prob=0.5, head=False),
    dict(kind="bert", seed=8, mask_prob=0.3, short_seq_prob=0.0, head=True, longer_ngrams=True),
    dict(kind="bert", seed=9, mask_prob=0.5, short_seq_prob=0.0, head=True, whole_words=False),
    dict(kind="bert", seed=10, mask_prob=0.5, short_seq_prob=0.0, head=True, max_ngram=9),
    dict(kind="t5", seed=1234, mask_prob=0.15, short_seq_prob=0.1, head=True),
    dict(kind="t5", seed=11, mask_prob=0.4, short_seq_prob=0.9, head=True),
)


def main():
    mcore_cpu.init()
    draw = random.Random(3)
    tokens = SPECIALS + [draw.choice(("w", "w", "##p")) + str(number) for number in range(40)]
    sentence = lambda: [draw.randrange(5, len(tokens)) for _ in range(draw.randint(1, 12))]
    documents = [[sentence() for _ in range(draw.choice((0, 1, 2, 3, 7)))] for _ in range(20)]
    documents[4] = [sentence(), [5] * 513, sentence()]
    documents[5] = [[6] * 513]
    tokenizer, cases = Tokenizer(tokens, 20), []
    for flags in CASES:
        with tempfile.TemporaryDirectory() as folder:
            mcore_data.write(f"{folder}/corpus", documents)
            peer = build_peer(
                flags["kind"], tokenizer, ([f"{folder}/corpus"], None), "80,20,0", [40, 5, 0], 48,
                60, flags, f"{folder}/cache",
            )  # fmt: skip
            splits = [[fields(dataset[i]) for i in range(len(dataset))] for dataset in peer[:2]]
        kept = [dict(index=i, **splits[0][i]) for i in range(0, len(splits[0]), 4)]
        cases.append(dict(flags, sizes=list(map(len, splits)), train=kept, valid=splits[1][:2]))
    fixture = dict(tokens=tokens, documents=documents, seq_length=48, decoder=60, cases=cases)
    OUTPUT.write_text(json.dumps(fixture, separators=(",", ":")) + "\n")
    print([case["sizes"] for case in cases])


if __name__ == "__main__":
    main()
