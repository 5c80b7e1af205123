"""Writes fixtures/training/: texts and the tokenizers that the real `tokenizers` package trains.

words.txt has words of many alphabets; few_letters.txt has words of three letters, whose merges
give the same token on several ways, so that pairs are merged twice. NAME.json is a tokenizer that
the package trained on a file as BpeTrainer, WordPieceTrainer or UnigramTrainer reads it, line by
line. WordPiece gets the ids of ##x in a random order there, so the fixture gives these parts as
special tokens.

Usage: python make_training_fixtures.py (from anywhere; overwrites fixtures/training/)
"""
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).resolve().parent / "fixtures" / "training"
SYLLABLES = "the in an er ing st qu o é ß на по 日本 が 👋 x2 ' 17 -".split()


def random_words(generator, syllables, count, longest):
    words = [
        "".join(generator.choice(syllables) for _ in range(generator.randint(1, longest)))
        for _ in range(60)
    ]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    return generator.choices(words, weights, k=count)


def write_text(name, words):
    lines = [" ".join(words[i : i + 12]) for i in range(0, len(words), 12)]
    path = FOLDER / name
    path.write_bytes(("\n".join(lines) + "\r\n\n  end").encode())
    return str(path)


def byte_bpe(text, name, pre_tokenizer=None, **options):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), **options}
    tokenizer.train([text], trainers.BpeTrainer(show_progress=False, **options))
    tokenizer.save(str(FOLDER / name))


def wordpiece(text, name):
    def train(special_tokens):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(
            vocab_size=200, min_frequency=2, special_tokens=special_tokens, show_progress=False
        )
        tokenizer.train([text], trainer)
        return tokenizer

    special = ["[PAD]", "[UNK]"]
    parts = [token for token in train(special).get_vocab() if token[:2] == "##" and len(token) == 3]
    train(special + sorted(parts)).save(str(FOLDER / name))


def unigram(text, name):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=44,
        special_tokens=["<s>", "</s>"],
        unk_token="<unk>",
        shrinking_factor=0.8,
        show_progress=False,
    )
    tokenizer.train([text], trainer)
    tokenizer.save(str(FOLDER / name))


def main():
    FOLDER.mkdir(exist_ok=True)
    generator = random.Random(7)
    words = write_text("words.txt", random_words(generator, SYLLABLES, 800, 5))
    few = write_text("few_letters.txt", random_words(generator, list("abc"), 300, 9))
    special = ["<|endoftext|>", "the"]
    byte_bpe(words, "byte_bpe.json", vocab_size=320, min_frequency=3, special_tokens=special)
    byte_bpe(few, "merged_twice.json", vocab_size=330, special_tokens=["abc"])
    byte_bpe(few, "short_tokens.json", vocab_size=330, special_tokens=["abc"], max_token_length=5)
    split = pre_tokenizers.Split(Regex(r"\p{L}+|\P{L}"), "isolated")
    no_regex = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    byte_bpe(
        words,
        "own_pattern.json",
        pre_tokenizers.Sequence([split, no_regex]),
        vocab_size=80,
        initial_alphabet=[],
        limit_alphabet=36,
    )
    wordpiece(words, "wordpiece.json")
    unigram(words, "unigram.json")


if __name__ == "__main__":
    main()
