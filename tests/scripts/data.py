"""What the small runs read: a corpus in the tokens of some tokenizers, made anew each time."""

import json
import pathlib
import subprocess

from flags import HERE, Script

FIXTURES = HERE.parent / "tokenizers" / "fixtures"
VOCAB = str(FIXTURES / "gpt2" / "vocab.json")
MERGES = str(FIXTURES / "gpt2" / "merges.txt")
HUGGING_FACE = str(FIXTURES / "qwen2.json")
SENTENCEPIECE = str(FIXTURES / "sp_bpe_bytes.model")
KINDS = {
    "GPT2BPETokenizer": ["--vocab-file", VOCAB, "--merge-file", MERGES],
    "HuggingFaceTokenizer": ["--tokenizer-model", HUGGING_FACE],
    "GPTSentencePieceTokenizer": ["--tokenizer-model", SENTENCEPIECE],
    "Llama2Tokenizer": ["--tokenizer-model", SENTENCEPIECE],
}
WORDS = (
    "the quick brown fox jumps over a lazy dog while seven green birds sing on one old roof".split()
)

# What Megatron-LM's format of conversations writes around messages, and the token that pads them.
CONVERSATION_TOKENS = ["<unk>", "<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<SPECIAL_233>"]
NUM_CONVERSATIONS = 64

# Published splits give as little as two hundred-thousandths of the documents to the test.
NUM_DOCUMENTS = 60000


def document(i: int) -> str:
    return " ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(8 + i % 8))


def write_splits(folder: pathlib.Path, name: str, source: str) -> None:
    splits = {split: [source] for split in ("train", "valid", "test")}
    (folder / f"{name}.json").write_text(json.dumps(splits))


def make_conversations(folder: pathlib.Path) -> None:
    """Writes sft.jsonl, sft.json (the same for each split) and sft_tokenizer.json."""
    tokenizer = json.loads(pathlib.Path(HUGGING_FACE).read_text())
    added = tokenizer["added_tokens"]
    for content in CONVERSATION_TOKENS:
        added.append({**added[0], "id": added[-1]["id"] + 1, "content": content})
    (folder / "sft_tokenizer.json").write_text(json.dumps(tokenizer))
    with (folder / "sft.jsonl").open("w") as out:
        for i in range(NUM_CONVERSATIONS):
            question, answer = WORDS[i % len(WORDS)], document(i)
            messages = [
                {"role": "user", "content": question},
                {"role": "assistant", "content": answer},
            ]
            out.write(json.dumps({"messages": messages}) + "\n")
    write_splits(folder, "sft", str(folder / "sft.jsonl"))


def make_sentences(program: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes vocab.txt of BERT and T5, and sentences_text_document: documents of two sentences."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*specials, *dict.fromkeys(WORDS)]) + "\n")
    corpus = folder / "sentences.jsonl"
    with corpus.open("w") as out:
        for i in range(NUM_DOCUMENTS):
            out.write(json.dumps({"text": [document(2 * i), document(2 * i + 1)]}) + "\n")
    command = [program, "preprocess-data", "--input", corpus]
    command += ["--output-prefix", folder / "sentences", "--vocab-file", folder / "vocab.txt"]
    command += ["--tokenizer-type", "BertWordPieceLowerCase"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def make(program: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes KIND_text_document.bin, .idx and KIND.json (the same for each split) to `folder`."""
    make_conversations(folder)
    make_sentences(program, folder)
    corpus = folder / "corpus.jsonl"
    with corpus.open("w") as out:
        out.writelines(json.dumps({"text": document(i)}) + "\n" for i in range(NUM_DOCUMENTS))
    for kind, files in KINDS.items():
        prefix = folder / kind
        command = [program, "preprocess-data", "--input", corpus, "--output-prefix", prefix]
        command += ["--tokenizer-type", kind, *files, "--append-eod", "--workers", "2"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise SystemExit(f"the corpus could not be made:\n{done.stderr}")
        write_splits(folder, kind, f"{prefix}_text_document")


def uses_patch_tokenizer(script: Script) -> bool:
    """Whether the tokenizer comes from Pai-Megatron-Patch, whose classes wrap Hugging Face's."""
    return script.has("--patch-tokenizer-type")


def places(script: Script, folder: pathlib.Path, own: pathlib.Path) -> dict[str, str]:
    """The path that stands for each placeholder; a run writes below `own` alone."""
    kind = script.value("--tokenizer-type")
    if uses_patch_tokenizer(script):
        kind = "HuggingFaceTokenizer"
    if kind not in KINDS:
        kind = "GPT2BPETokenizer"
    conversations = {
        "{TOKENIZER}": str(folder / "sft_tokenizer.json"),
        "{DATA}": str(folder / "sft.jsonl"),
        "{SPLITS}": str(folder / "sft.json"),
    }
    sentences = {
        "{VOCAB}": str(folder / "vocab.txt"),
        "{DATA}": str(folder / "sentences_text_document"),
    }
    return {
        "{VOCAB}": VOCAB,
        "{MERGES}": MERGES,
        "{TOKENIZER}": SENTENCEPIECE if SENTENCEPIECE in KINDS[kind] else HUGGING_FACE,
        "{DATA}": str(folder / f"{kind}_text_document"),
        "{SPLITS}": str(folder / f"{kind}.json"),
        "{SAVE}": str(own / "save"),
        "{LOAD}": str(own / "load"),
        "{TENSORBOARD}": str(own / "tensorboard"),
        "{CACHE}": str(own / "cache"),
        "{WANDB}": "run",
        **(conversations if script.has("--sft") else {}),
        **(sentences if script.family in ("bert", "t5") else {}),
    }


def with_tokenizer(
    script: Script, flags: list[tuple[str, list[str]]]
) -> list[tuple[str, list[str]]]:
    """`flags` with the tests' tokenizer in place of one from a model hub."""
    changed = [
        (flag, ["{TOKENIZER}"] if flag == "--tokenizer-model" else values) for flag, values in flags
    ]
    if uses_patch_tokenizer(script):
        changed.append(("--tokenizer-type", ["HuggingFaceTokenizer"]))
        changed.append(("--tokenizer-model", ["{TOKENIZER}"]))
    return changed
