#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets from small real files: FOLDER/<target>/.

They come from the fixtures of the tests and the transcripts in tests/cli. Usage: make_seeds.py
FOLDER
"""
import gzip
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
FIXTURES = TESTS / "tokenizers" / "fixtures"
PATTERNS = ["r50k_base", "cl100k_base", "o200k_base", "llama3", "qwen", "tekken", r"\w+|\s+"]
LARGEST = 20_000


def texts():
    """The lines of the tokenizers' fixtures."""
    for path in sorted(FIXTURES.glob("*.jsonl")):
        for line in path.read_text().splitlines()[::10]:
            case = json.loads(line)
            if "hex" in case:
                yield bytes.fromhex(case["hex"])


def small_json(path):
    """A tokenizer.json whose vocabulary is short, so that mutations reach the rest."""
    root = json.loads(path.read_text())
    model = root["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = model["vocab"][:40]
    else:
        kept = sorted(model["vocab"].items(), key=lambda item: item[1])[:300]
        model["vocab"] = dict(kept)
        known = set(model["vocab"])

        def is_known(merge):
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            return {left, right, left + right} <= known

        model["merges"] = [m for m in model.get("merges", []) if is_known(m)]
        if model["type"] != "BPE":
            del model["merges"]
        for token in root["added_tokens"]:
            if token["content"] not in known:
                token["id"] = len(known)
                known.add(token["content"])
    text = json.dumps(root, ensure_ascii=False)
    return text.encode()


def tokenizer_files():
    names = ["bert", "flavours", "gpt2", "llama2", "llama3", "metaspace", "qwen2", "strips"]
    for name in names + ["word_level"]:
        yield "tokenizer_json", small_json(FIXTURES / f"{name}.json")
    for path in FIXTURES.glob("sp_*bytes.model"):
        yield "sentencepiece", path.read_bytes()
    yield "wordpiece", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\n##s\n!\n\xe4\xb8\xad\n"
    ranks = (FIXTURES / "small.tiktoken").read_bytes()
    for pattern in PATTERNS:
        yield "tiktoken", pattern.encode() + b"\0" + ranks
    entries = json.loads((FIXTURES / "list.json").read_text())[:300]
    yield "tiktoken", b"\0" + json.dumps(entries).encode()
    config = {
        "pattern": r"\p{L}+|\s+",
        "num_vocab_tokens": 300,
        "default_vocab_size": 310,
        "default_num_special_tokens": 10,
        "version": "v3",
    }
    specials = [{"rank": 0, "token_str": "<unk>", "is_control": True}]
    tekken = {"config": config, "vocab": entries, "special_tokens": specials}
    yield "tiktoken", b"\0" + json.dumps(tekken).encode()
    folder = FIXTURES / "gpt2"
    files = [next(folder.glob(pattern)).read_bytes() for pattern in ("vocab*", "merges*")]
    yield "gpt2_files", b"\0".join(files)
    special = {"content": "<s>", "lstrip": False, "rstrip": False, "special": True}
    tokenizer_config = {
        "bos_token": special,
        "eos_token": "</s>",
        "added_tokens_decoder": {"0": special},
        "chat_template": [{"name": "default", "template": "{{ bos_token }}"}],
    }
    parts = [tokenizer_config, {"eos_token": "</s>"}, {"chat_template": "{{ 1 }}"}]
    yield "tokenizer_config", b"\0".join(json.dumps(part).encode() for part in parts)


def manifest():
    progress = dict.fromkeys(
        [
            "iteration",
            "consumed_train_samples",
            "skipped_train_samples",
            "consumed_valid_samples",
            "scheduler_num_steps",
            "floating_point_operations",
        ],
        3,
    )
    digits = "0123456789abcdef"
    piece = {"file": "a.safetensors", "key": "w", "offset": [0, 0], "shape": [2, 4]}
    pieces = [piece | {"xxh3": digits}, piece | {"xxh3": digits, "offset": [2, 0]}]
    tensor = {"kind": "weight", "dtype": "F32", "shape": [4, 4], "pieces": pieces}
    loss_scale = {"scale": 2.0, "growth_tracker": 1, "hysteresis_tracker": 2}
    return {
        "format": "megatron-checkpoint",
        "format_version": 1,
        "progress": progress,
        "model": {},
        "settings": {},
        "model_type": "llama",
        "files": {"tokenizer/tokenizer.json": digits},
        "headers": {"a.safetensors": digits},
        "tensors": {"w": tensor},
        "optimizer": {"name": "adam", "num_steps": 3, "loss_scale": loss_scale},
    }


def data_files():
    for dtype, multimodal in ((4, False), (8, True)):
        lengths, size = [3, 2, 5], 4 if dtype == 4 else 2
        pointers = [0, 3 * size, 5 * size]
        header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, dtype, 3, 3)
        index = header + struct.pack("<3i", *lengths) + struct.pack("<3q", *pointers)
        index += struct.pack("<3q", 0, 2, 3) + (b"\0\1\0" if multimodal else b"")
        yield "indexed_dataset", index
    for shape, descr, size in (("(3,)", "<i4", 12), ("(2, 3)", "<i8", 48), ("(4,)", "<u4", 16)):
        head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
        head += " " * (118 - len(head) - 1) + "\n"
        yield "npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + bytes(size)
    lines = b'{"text": "a b", "title": "t"}\n{"title": "x", "text": ["\\u00e9", "c"]}\n\n{"text'
    yield "documents", lines
    yield "documents", b"One paragraph\nof lines.\n\n\nAnother.\r\n"
    yield "text_stream", gzip.compress(lines) + gzip.compress(b"more")
    if shutil.which("zstd"):
        packed = subprocess.run(["zstd", "-c"], input=lines, capture_output=True, check=True)
        yield "text_stream", packed.stdout
    yield "text_stream", lines
    chat = (TESTS / "datasets" / "fixtures" / "sft.jsonl").read_bytes()
    yield "conversations", b'{"messages": [{"role": "user", "content": "Hi"}]}\n'
    yield "conversations", chat[:3000]
    yield "labelled_texts", b'{"sentence1": "a", "sentence2": "b", "label": "no"}\n'
    yield "labelled_texts", b'{"question": "a", "choices": ["b", "c"], "label": "B"}\n'
    race = {"article": "a", "questions": ["b _"], "options": [["c", "d"]], "answers": ["A"]}
    yield "labelled_texts", json.dumps(race).encode()
    yield "labelled_texts", b"text\tlabel\na b\t1\n"
    state = {"job": "job", "position": {"file": 0, "offset": 3, "line": 1, "finished_bytes": 0}}
    yield "preprocess_checkpoint", json.dumps(state).encode()
    punkt = (b"dr\nvs", b"##number##\tdraft\n", b"the\nthey\n", b"they\t34\nthe\t2\n")
    yield "punkt_model", b"\0".join(punkt) + b"\0Dr. Lee read it. They left.\nAt 3. draft it ended."
    names = [b"0.3\0a\x000.7\0b", b"a\0b"]
    names.append(b'{"train": ["0.3", "a", 0.7, "b"], "valid": "c", "test": null}')
    for name in names:
        yield "data_names", name
    stamp = {"version": 1, "contents": "0000000000000007"}
    stamp["sources"] = [{"file": "corpus.idx", "bytes": 6, "time_ns": 1, "settled": True}]
    digits = "0123456789abcdef"
    stamp["arrays"] = [{"array": "order.npy", "bytes": 5, "first": digits, "last": digits}]
    yield "index_stamp", json.dumps(stamp).encode()
    yield "duplicate_journal", b"\x01\x08" + struct.pack("<6Q", 1, 2, 0, 3, 4, 0)
    yield "duplicate_journal", b"\x17\x08" + struct.pack("<14Q", *[1, 2, 1, 3, 3, 4, 4] * 2)
    for schedule in (b"0: 0.7 a 0.3 b\n20: 1 c\n", b"0:\x000.7\0a\x0010:\x001e3\0b"):
        yield "blend_schedule", b"0" + schedule
        yield "blend_schedule", b"1" + schedule
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    yield "safetensors", struct.pack("<Q", len(header)) + header + bytes(8)
    yield "gguf", (TESTS / "formats/fixtures/model.gguf").read_bytes()
    yield "manifest", json.dumps(manifest()).encode()
    yield "metrics_log", b'{"iteration": 1, "lm loss": 2.5, "routing": {"load": [[1, 2]]}}\n' * 3


def foreign_checkpoints():
    folder = TESTS / "formats" / "fixtures"
    for line in (folder / "pickles.json").read_text().splitlines():
        for pickle in json.loads(line)["pickles"]:
            yield "pickle", bytes.fromhex(pickle)
    for path in folder.glob("*.pt"):
        yield "torch_file", path.read_bytes()
    for path in [folder / "old_index.pkl", *folder.glob("*/.metadata")]:
        yield "dcp_metadata", path.read_bytes()


def remote_files():
    settings = b"[default]\naws_access_key_id = AKIA\naws_secret_access_key=x=\n"
    settings += b"[profile p]\nregion = eu-west-1\n"
    for path in (b"s3://bucket/a b/c.idx", b"s3://my.bucket/key", b"https://host:80/p?q=1"):
        for endpoint in (b"", b"http://127.0.0.1:9000/"):
            yield "object_location", b"\0".join([path, endpoint, b"p", settings])
    ok = b'HTTP/1.1 206 Partial Content\r\nETag: "1"\r\nContent-Length: %d\r\n'
    ok += b"Content-Range: bytes %d-%d/20\r\n\r\n"
    answer = ok % (1, 0, 0) + b"a\0" + ok % (16, 4, 19) + b"efghijklmnopqrst"
    yield "http_answers", answer
    yield "http_answers", answer.replace(b"Content-Length: 16", b"Transfer-Encoding: chunked")
    yield "http_answers", b"HTTP/1.1 416 No\r\nContent-Range: bytes */0\r\n\r\n"
    yield "http_answers", b"HTTP/1.1 301 Moved\r\nx-amz-bucket-region: eu-west-1\r\n\r\n"


def settings():
    yield "config_file", b"0" + b"lr: 1e-3\nmodel:\n  num_layers: 2\ndata-path: [a, b]\nbf16: yes\n"
    yield "config_file", b"1" + b'lr = 1e-3\n[model]\nnum-layers = 2\ndata_path = ["a"]\n'
    for path in sorted((TESTS / "cli").glob("*.test"))[:40]:
        for line in path.read_text().splitlines():
            found = re.match(r"\$ .*megatron pretrain gpt (--[^|;&<>$]*)$", line)
            if found:
                yield "command_line", found[1].replace(" ", "\0").encode()
    for text in (b"([1]*3+[0])*2", b"Et*3|(tt|)*5mL", b"20GB", b"1.5e9 MiB", b"969, 30, 1"):
        yield "expressions", text
    for text in (b"-9.102851321314299", b"12345678901234567890.5e2,", b"0.01e-312", b"18e307"):
        yield "json_number", text


def templates():
    for line in (FIXTURES / "chat_snippets.jsonl").read_text().splitlines()[1:]:
        yield "chat_template", json.loads(line)["template"].encode()


def grammars():
    for regex in (rb"^(a|b)*c{2,5}[^\d-f]+$", rb"(?i)\w+@\w+\.(com|org)", rb"\u00e9|\x41.?"):
        yield "grammars", b"\0" + regex
    for schema in (
        {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"enum": [1, "x"]}}},
        {"allOf": [{"minimum": -1.5}, {"maximum": 20, "type": "integer"}]},
        {"type": "array", "prefixItems": [{"type": "null"}], "items": False, "minItems": 1},
        {"patternProperties": {"^x": {"pattern": "y$", "maxLength": 3}}, "required": ["xa"]},
        {"oneOf": [{"type": "string", "format": "date"}, {"const": None}]},
    ):
        yield "grammars", b"\1" + json.dumps(schema).encode()


def chat_outputs():
    call = '{"name": "f", "arguments": {"a": [1, {"b": "x\\u00e9\\n"}]}}'
    parameters = "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>"
    texts = (
        '<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary '
        'to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>',
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        '{"a": 1}<|tool_call_end|><|tool_calls_section_end|>',
        "hm</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}"
        "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        '<minimax:tool_call><invoke name="f"><parameter name="a">1</parameter></invoke>',
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        f"<think>hm</think><tool_call>\n{parameters}\n</tool_call>{parameters}",
        f'[TOOL_CALLS][{call}][TOOL_CALLS]f[CALL_ID]1[ARGS]{{"a": 1}}',
        f"<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[{call}]<|END_ACTION|>",
        f"<tool_calls>[{call}, {call}]</tool_calls>",
        f"functools[{call}]",
        "hm</think><function_calls>\nf(a=1, b='x')\nf()\n</function_calls>",
        f"<tool_call>{call}</tool_call>\n<tool_call>{call}</tool_call> Done.",
        "[f(a=[1, None, True,], b={'c': \"\\x41\\'\"}), f()]",
        f"<|python_start|>{call}<|python_end|>",
        f"{call}; {call}",
    )
    for i, text in enumerate(texts):
        yield "chat_output", bytes([i, i]) + text.encode()


def all_seeds():
    yield from tokenizer_files()
    yield from data_files()
    yield from foreign_checkpoints()
    yield from remote_files()
    yield from settings()
    yield from templates()
    yield from grammars()
    yield from chat_outputs()
    for i in range(20):
        yield "decode", bytes([i]) + struct.pack(">200H", *range(0, 600, 3))
    for i, text in enumerate(texts()):
        yield "encode", bytes([i % 20]) + text
        yield "word_splitter", bytes([i % 10]) + text


def main():
    folder = pathlib.Path(sys.argv[1])
    for i, (target, content) in enumerate(all_seeds()):
        (folder / target).mkdir(parents=True, exist_ok=True)
        (folder / target / f"seed_{i:04d}").write_bytes(content[:LARGEST])


if __name__ == "__main__":
    main()
