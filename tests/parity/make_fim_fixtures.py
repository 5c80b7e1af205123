"""Writes tests/datasets/fixtures/fim.jsonl: samples that Megatron-LM's GPTFIMDataset made.

    python tests/parity/make_fim_fixtures.py MEGATRON_LM

MEGATRON_LM is a checkout of Megatron-LM of August 2026 or later. Each line has the tokenizer (a
file of tests/tokenizers/fixtures to which the five sentinels were added), the settings, the ids of
a sample and the ids after it was reordered with the generator RandomState([seed, index, 0]).
"""
import importlib.util
import json
import random
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import mcore_cpu
import numpy as np

TESTS = Path(__file__).resolve().parents[1]
OUTPUT = TESTS / "datasets/fixtures/fim.jsonl"
SENTINELS = ["<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<fim_end>"]
SPLIT = "<file_sep>"
TEXTS = (
    "def add(a, b):\n    return a + b\n",
    "The quick brown fox jumps over the lazy dog. It doesn't stop.",
    "Größe 你好, 世界 🙂👍🏽 naïve café\u0301",
    "x",
    "#include <vector>\n\nint main() { return 0; }",
    "  leading and trailing spaces  ",
    "1234567 89 3.14",
)


def module(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    result = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(result)
    return result


def with_tokens(name, tokens, folder):
    """Writes the tokenizer of a fixture with the special tokens that it lacks behind its ids."""
    data = json.loads((TESTS / f"tokenizers/fixtures/{name}.json").read_text())
    vocabulary = data["model"]["vocab"]
    known = [entry["id"] for entry in data["added_tokens"]]
    known += list(vocabulary.values()) if isinstance(vocabulary, dict) else range(len(vocabulary))
    texts = {entry["content"] for entry in data["added_tokens"]}
    texts |= set(vocabulary if isinstance(vocabulary, dict) else (piece for piece, _ in vocabulary))
    missing = [token for token in tokens if token not in texts]
    for number, content in enumerate(missing, start=max(known) + 1):
        data["added_tokens"].append(
            dict(
                id=number,
                content=content,
                single_word=False,
                lstrip=False,
                rstrip=False,
                normalized=False,
                special=True,
            )
        )
    Path(folder, "tokenizer.json").write_text(json.dumps(data))
    specials = [entry["content"] for entry in data["added_tokens"] if entry["special"]]
    Path(folder, "tokenizer_config.json").write_text(
        json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", "additional_special_tokens": specials}
        )
    )


def reorder(dataset_class, tokenizer, settings, sample):
    dataset = object.__new__(dataset_class)
    ids = tokenizer.tokens_to_ids(SENTINELS)
    (
        dataset.prefix_tok_id,
        dataset.middle_tok_id,
        dataset.suffix_tok_id,
        dataset.pad_tok_id,
        dataset.eod_tok_id,
    ) = ids
    dataset.fim_rate, dataset.fim_spm_rate = settings["rate"], settings["spm_rate"]
    dataset.fragment_fim_rate = settings.get("fragment_rate")
    dataset.no_fim_prefix = settings.get("no_prefix")
    dataset.fim_split_sample = (
        tokenizer.tokens_to_ids([SPLIT])[0] if "fragment_rate" in settings else None
    )
    dataset.config = SimpleNamespace(tokenizer=SimpleNamespace(_tokenizer=tokenizer))
    dataset.np_rng = np.random.RandomState([settings["seed"], settings["index"], 0])
    dataset.shuffle_index, dataset.document_index = [0], [0]
    dataset.sample_index = [(0, 0), (0, len(sample) - 1)]
    dataset.dataset = SimpleNamespace(get=lambda *_, **__: np.array(sample, dtype=np.int64))
    return dataset._query_document_sample_shuffle_indices(0)[0].tolist()


def random_case(draw, tokenizer):
    settings = dict(
        rate=draw.choice((1.0, 1.0, 0.5, 0.9)),
        spm_rate=draw.choice((0.5, 0.0, 1.0)),
        seed=draw.choice((1234, 0, 2**32 - 1)),
        index=draw.randrange(2**32),
    )
    if draw.random() < 0.4:
        settings["fragment_rate"] = draw.choice((0.5, 1.0))
    if draw.random() < 0.3:
        settings["no_prefix"] = draw.choice(("The", "def", "x"))
    eod, separator = tokenizer.tokens_to_ids([SENTINELS[4], SPLIT])
    sample = [eod] if draw.random() < 0.2 else []
    for _ in range(draw.randint(1, 5)):
        sample += tokenizer.text_to_ids(draw.choice(TEXTS))
        sample += draw.choice(([eod], [eod], [separator], [eod, eod], [separator, separator]))
    if draw.random() < 0.6:
        sample = sample[: draw.randint(1, len(sample))]
    return settings, sample


def main():
    mcore_cpu.init()
    checkout = Path(sys.argv[1])
    dataset = module(checkout / "megatron/training/datasets/fim_dataset.py", "fim").GPTFIMDataset
    from megatron.core.tokenizers.text.libraries import HuggingFaceTokenizer
    draw = random.Random(3)
    lines = []
    for name in ("gpt2", "llama3", "llama2", "t5"):
        with tempfile.TemporaryDirectory() as folder:
            with_tokens(name, [*SENTINELS, SPLIT], folder)
            tokenizer = HuggingFaceTokenizer(folder, include_special_tokens=True)
            for _ in range(40):
                settings, sample = random_case(draw, tokenizer)
                lines.append(
                    dict(
                        tokenizer=name,
                        **settings,
                        sample=sample,
                        expected=reorder(dataset, tokenizer, settings, sample),
                    )
                )
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


if __name__ == "__main__":
    main()
