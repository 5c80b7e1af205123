"""Writes tests/datasets/fixtures/sft.jsonl: samples that Megatron-LM's SFTDataset made.

    python tests/parity/make_sft_fixtures.py MEGATRON_LM

MEGATRON_LM is a checkout of Megatron-LM of August 2026 or later. Each line has the tokenizer (a
file of tests/tokenizers/fixtures to which special tokens were added), the format, the sizes, the
messages, and the sample; `refused` is true where SFTTokenizer raised an error.
"""
import json
import random
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import mcore_cpu

from make_fim_fixtures import TESTS, TEXTS, module, with_tokens

OUTPUT = TESTS / "datasets/fixtures/sft.jsonl"
SPECIALS = ["<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<SPECIAL_233>", "<unk>"]
FORMATS = ("nemotron-h-aligned", "nemotron-nano-v2", "identity", "default")
TEMPLATE = (
    "{% for m in messages %}{{ '<SPECIAL_10>' + m['role'] + '\n' + m['content'] | trim }}"
    "{{ '<SPECIAL_12>\n' }}{% endfor %}"
)
QUESTIONS = (*TEXTS, "/think hard /no_think", "\u2003\u00a0 spaces of all kinds \u3000\x1f")


def random_conversation(draw, name):
    # Without special tokens around messages, only complete tokens can be told apart.
    wrap = (lambda text: f"<SPECIAL_12>{text}<SPECIAL_12>") if name == "identity" else str
    turns = []
    if draw.random() < 0.7:
        turns.append(dict(role="system", content=wrap(draw.choice(("", *QUESTIONS)))))
    for _ in range(draw.randint(1, 3)):
        turns.append(dict(role="user", content=wrap(draw.choice(QUESTIONS))))
        if draw.random() < 0.1:
            turns.append(dict(role="tool", content=wrap("42")))
        turns.append(dict(role="assistant", content=wrap(draw.choice(QUESTIONS))))
    if draw.random() < 0.03:
        turns[-1]["content"] = ""
    if draw.random() < 0.03:
        turns[-1]["role"] = draw.choice(("bot", "Assistant"))
    return turns


def main():
    mcore_cpu.init()
    checkout = Path(sys.argv[1])
    dataset_class = module(checkout / "megatron/training/datasets/sft_dataset.py", "s").SFTDataset
    tokenizer_class = module(
        checkout / "megatron/core/tokenizers/text/libraries/sft_tokenizer.py", "t"
    ).SFTTokenizer
    draw = random.Random(7)
    lines = []
    for name in ("gpt2", "llama3", "llama2", "t5"):
        with tempfile.TemporaryDirectory() as folder:
            with_tokens(name, SPECIALS, folder)
            config = Path(folder, "tokenizer_config.json")
            config.write_text(json.dumps(dict(json.loads(config.read_text()), pad_token="<unk>")))
            Path(folder, "chat_template.jinja").write_text(TEMPLATE)
            for prompt_format in FORMATS:
                tokenizer = tokenizer_class(folder, prompt_format)
                for _ in range(8):
                    messages = []
                    for _ in range(draw.randint(1, 4)):
                        messages += random_conversation(draw, prompt_format)
                    case = dict(
                        tokenizer=name,
                        format=prompt_format,
                        seq_length=draw.choice((16, 64, 128, 256)),
                        cp=draw.choice((1, 1, 2, 4)),
                        messages=messages,
                    )
                    if prompt_format == "default":
                        case["template"] = TEMPLATE
                    dataset = object.__new__(dataset_class)
                    dataset.dataset, dataset.indices, dataset.num_samples = [messages], [0], 1
                    dataset.config = SimpleNamespace(
                        tokenizer=SimpleNamespace(
                            tokenize_conversation=tokenizer.tokenize_conversation,
                            eod=tokenizer.eod,
                            pad=tokenizer.pad_id,
                        ),
                        sequence_length=case["seq_length"],
                        context_parallel_size=case["cp"],
                        reset_position_ids=False,
                        create_attention_mask=False,
                        reset_attention_mask=False,
                    )
                    try:
                        sample = dataset[0]
                    except (AssertionError, ValueError):
                        lines.append(dict(case, refused=True))
                        continue
                    boundaries = sorted({int(n) for n in sample["cu_seqlens"]})
                    labels = [
                        label if mask else -100
                        for label, mask in zip(sample["labels"].tolist(), sample["loss_mask"])
                    ]
                    lines.append(
                        dict(
                            case,
                            refused=False,
                            pad=tokenizer.pad_id,
                            tokens=sample["tokens"].tolist(),
                            labels=labels,
                            position_ids=sample["position_ids"].tolist(),
                            cu_seqlens=boundaries,
                        )
                    )
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    print(len(lines), sum(line["refused"] for line in lines))


if __name__ == "__main__":
    main()
