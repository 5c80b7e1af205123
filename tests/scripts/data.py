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

# Published splits give as little as two hundred-thousandths of the documents to the test.
NUM_DOCUMENTS = 60000


def document(i: int) -> str:
    return " ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(8 + i % 8))


def make(program: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes KIND_text_document.bin, .idx and KIND.json (the same for each split) to `folder`."""
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
        splits = {split: [f"{prefix}_text_document"] for split in ("train", "valid", "test")}
        (folder / f"{kind}.json").write_text(json.dumps(splits))


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
