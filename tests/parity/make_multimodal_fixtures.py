"""Writes tests/datasets/fixtures/multimodal.jsonl: what Megatron-LM's MultimodalTokenizer makes of
texts and conversations.

    python tests/parity/make_multimodal_fixtures.py MEGATRON_LM

MEGATRON_LM is a checkout of Megatron-LM of August 2026 or later. It needs transformers, but not
torch: of the model, the tokenizer takes two constants. Each line has the tokenizer (a file of
tests/tokenizers/fixtures to which special tokens were added), the flags, and the padding token.
Lines of a text have its ids, those of a conversation the ids, the targets, and the ids that ask for
an answer; `refused` is true where the tokenizer raised an error for the targets.
"""
import copy
import importlib.util
import json
import random
import sys
import tempfile
import types
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
OUTPUT = TESTS / "datasets/fixtures/multimodal.jsonl"
FORMATS = (
    "mistral llama3 llama3p1 llama3p2 nvlm-yi-34b chatml nemotron5 nemotron5-aligned qwen2p0 "
    "qwen2p5 nemotron6-moe"
).split()
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] }}"
    "{{ '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
SPECIALS = """<s> </s> <pad> <unk> <|begin_of_text|> <|end_of_text|> <|start_header_id|>
<|end_header_id|> <|eot_id|> <|finetune_right_pad_id|> <|im_start|> <|im_end|> <SPECIAL_14>
<SPECIAL_15> <SPECIAL_233> [PREFIX]""".split()
ADDED = ["<image>", "<img>", "</img>", "<Image>", "</Image>"]
TEXTS = (
    "The quick brown fox jumps over the lazy dog. It doesn't stop.",
    "<image>\nWhat is in <image>?",
    "two<image><image>images ",
    "  leading and trailing spaces  \n",
    "Größe 你好, 世界 🙂 naïve café\u0301",
    "\u2003\u00a0 spaces of all kinds \u3000\x1f",
    "x",
    "def add(a, b):\n    return a + b\n",
    "1234567 89 3.14",
)
ANSWERS = tuple(text for text in TEXTS if "<image>" not in text)


def module(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    result = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(result)
    return result


def tokenizer_class(checkout):
    core = "megatron.core.models.multimodal.llava_model"
    sys.modules[core] = types.ModuleType(core)
    sys.modules[core].IGNORE_INDEX, sys.modules[core].IMAGE_TOKEN = -100, "<image>"
    name = "megatron.core.tokenizers.text.libraries.sft_tokenizer"
    for part in (core, name):
        while "." in part:
            part = part.rpartition(".")[0]
            sys.modules.setdefault(part, types.ModuleType(part))
    libraries = checkout / "megatron/core/tokenizers"
    sys.modules[name] = module(libraries / "text/libraries/sft_tokenizer.py", name)
    return module(
        libraries / "vision/libraries/multimodal_tokenizer.py", "vision"
    ).MegatronMultimodalTokenizer


def write_tokenizer(name, chat_template, folder):
    """Writes the tokenizer of a fixture with the special tokens that it lacks behind its ids."""
    data = json.loads((TESTS / f"tokenizers/fixtures/{name}.json").read_text())
    vocabulary = data["model"]["vocab"]
    pieces = vocabulary if isinstance(vocabulary, dict) else [piece for piece, _ in vocabulary]
    known = [entry["id"] for entry in data["added_tokens"]]
    known += list(vocabulary.values()) if isinstance(vocabulary, dict) else range(len(vocabulary))
    texts = {entry["content"] for entry in data["added_tokens"]} | set(pieces)
    missing = [token for token in SPECIALS if token not in texts]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    for number, content in enumerate(missing, start=max(known) + 1):
        data["added_tokens"].append(dict(id=number, content=content, special=True, **flags))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "chat_template": chat_template,
    }
    Path(folder, "tokenizer.json").write_text(json.dumps(data))
    Path(folder, "tokenizer_config.json").write_text(json.dumps(config))


def random_conversation(draw):
    turns = []
    if draw.random() < 0.5:
        turns.append(dict(role="system", content=draw.choice(ANSWERS)))
    for _ in range(draw.randint(1, 3)):
        turns.append(dict(role="user", content=draw.choice(TEXTS)))
        if draw.random() < 0.2:
            turns.append(dict(role="user", content="<image>"))
        turns.append(dict(role="assistant", content=draw.choice(ANSWERS)))
    change = draw.random()
    if change < 0.06:
        turns[-1]["content"] = "see <image>"
    elif change < 0.12:
        draw.choice(turns)["content"] = ""
    elif change < 0.18:
        turns[-1]["role"] = "Assistant"
    elif change < 0.24:
        turns.append(dict(role="user", content="and?"))
    return turns


def answer(tokenizer, case, messages):
    """Adds what the tokenizer makes of a conversation, which it changes."""

    def run(targets, prompt):
        made = tokenizer.tokenize_conversation(copy.deepcopy(messages), targets, prompt)
        return [part.tolist() for part in made] if targets else made.tolist()

    case["generation"] = run(False, True)
    try:
        case["tokens"], case["targets"] = run(True, False)
        case["refused"] = False
    except (AssertionError, ValueError, RuntimeError, TypeError):
        case["tokens"], case["refused"] = run(False, False), True


def main():
    multimodal = tokenizer_class(Path(sys.argv[1]))
    draw = random.Random(11)
    lines = []
    for name in ("gpt2", "llama2", "llama3", "t5"):
        for prompt_format in FORMATS:
            template = LLAMA3 if prompt_format == "llama3" else CHATML
            with tempfile.TemporaryDirectory() as folder:
                write_tokenizer(name, template, folder)
                for image_tag_type, force in (("", False), ("nvlm", True), ("internvl", False)):
                    flags = dict(
                        tokenizer=name,
                        format=prompt_format,
                        image_tag_type=image_tag_type,
                        force_system_message=force,
                    )
                    tokenizer = multimodal(folder, prompt_format, ADDED, image_tag_type, force)
                    text = draw.choice(TEXTS)
                    lines.append(
                        dict(flags, pad=tokenizer.pad, text=text, ids=tokenizer.tokenize(text))
                    )
                    messages = random_conversation(draw)
                    case = dict(flags, pad=tokenizer.pad, messages=messages)
                    answer(tokenizer, case, messages)
                    lines.append(case)
    templates = {"llama3": LLAMA3, "other": CHATML}
    header = dict(special_tokens=SPECIALS, added_tokens=ADDED, templates=templates)
    OUTPUT.write_text(
        "".join(
            json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n"
            for line in [header, *lines]
        )
    )
    print(len(lines), sum(line.get("refused", False) for line in lines))


if __name__ == "__main__":
    main()
