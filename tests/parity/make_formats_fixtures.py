"""Writes tests/formats/fixtures: pickles and checkpoints of the real Python, torch, megatron-core.

    python tests/parity/make_formats_fixtures.py

pickles.json has each value in all protocols and as text (text_of() below). torch_files.json has the
tensors of the *.pt files: names, dtypes, shapes, strides and their elements as bytes. dcp/ and
torch_dist/ are checkpoints of torch.distributed.checkpoint and of megatron-core's
dist_checkpointing; dcp.json and torch_dist.json have their tensors. model.gguf is of the package
gguf, and gguf.json has its metadata and tensors.
"""
import argparse
import collections
import enum
import io
import json
import math
import os
import pickle
import queue
import shutil
import struct
import sys
import threading
import types
from pathlib import Path

import gguf
import mcore_cpu
import numpy as np
import torch
import torch.distributed.checkpoint as dcp

OUTPUT = Path(__file__).resolve().parents[1] / "formats/fixtures"


def text_of(value):
    """The text that tests/formats/pickle_test.cpp makes of a PickleValue."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return str(value)
        size = value.bit_length() // 8 + 1
        return "big:" + value.to_bytes(size, "little", signed=True).hex()
    if isinstance(value, float):
        return "f:" + struct.pack(">d", value).hex()
    if isinstance(value, str):
        return "t:" + value.encode("utf-8", "surrogatepass").hex()
    if isinstance(value, (bytes, bytearray)):
        return "b:" + bytes(value).hex()
    if isinstance(value, list):
        return "[" + ", ".join(map(text_of, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(text_of, value)) + ")"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(map(text_of, value))) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_of(k)}: {text_of(v)}" for k, v in value.items()) + "}"
    raise TypeError(value)


def values():
    shared = ["shared"]
    yield "constants", [None, True, False, (), [], {}, (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]
    edges = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**63 - 1]
    yield "integers", edges + [-n for n in edges] + [-(2**31) - 1, -(2**63)]
    yield "floats", [0.0, -0.0, 1.5, -2.75, 1e300, 5e-324, 0.1, math.pi]
    yield "texts", ["", "a", "a\nb\\n'\"", "é", "语言", "🙂", "\x00\x1a\r\x7f\x80\xff", "x" * 256]
    yield "shared", [shared, shared, {"k": shared}]
    yield "nested", {"a": [{"b": ({"c": [1, [2, [3]]]},)}], 5: "five", (1, "x"): None}
    yield "ordered", collections.OrderedDict([("z", 1), ("a", [2]), ("m", None)])
    yield "bytes", [b"", b"abc", bytes(range(3, 256, 9)), b"y" * 256, bytearray(b"\x00\xfe")]
    yield "sets", [set(), {1, 2, 3}, frozenset(), frozenset(["a"])]


def write_pickles():
    cases = []
    for name, value in values():
        pickles = [pickle.dumps(value, protocol) for protocol in range(6)]
        cases.append(dict(name=name, text=text_of(value), pickles=pickles))
    long = list(range(0, 5005, 5))  # pickled in two batches
    cases.append(dict(name="long", text=text_of(long), pickles=[pickle.dumps(long, 2)]))
    big = [2**63, -(2**63) - 1, 2**64, 2**127, -(2**200)]
    pickles = [pickle.dumps(big, protocol) for protocol in range(2, 6)]
    cases.append(dict(name="big", text=text_of(big), pickles=pickles))
    # What only Python 2 wrote.
    old_pickles = dict(
        python2_text=b"(lp0\nI01\naI00\naS'it\\'s\\x41\\n'\np1\naL12345678901L\naF1.5\nag1\na.",
        python2_binary=b"]q\0(U\2abT\3\0\0\0xyzJ\xff\xff\xff\xff(K\1K\2lK\3e.",
        python2_dict=b"(I1\nV\\u00e9\xe9\nI2\n(tdp0\n.",
    )
    for name, old in old_pickles.items():
        cases.append(dict(name=name, text=text_of(pickle.loads(old)), pickles=[old]))
    for case in cases:
        case["pickles"] = [data.hex() for data in case["pickles"]]
    (OUTPUT / "pickles.json").write_text(
        "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in cases)
    )


class Backend(enum.Enum):
    flash = 1
    auto = 5


def contents():
    base = torch.arange(24, dtype=torch.float32)
    parameter = torch.nn.Parameter(torch.tensor([1.5, -2.0]))
    yield "views", {
        "whole": base,
        "part": base[4:10],
        "transposed": base.reshape(4, 6).t(),
        "expanded": torch.tensor([7.0]).expand(2, 3),
        "scalar": torch.tensor(3, dtype=torch.int64),
        "empty": torch.empty(0, 4),
        "parameter": parameter,
        "nested": [{"tied": parameter}, (base[::5],)],
    }
    dtypes = {}
    for name in "float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64".split():
        dtypes[name] = torch.tensor([0, 1, 5]).to(getattr(torch, name))
    for name in "float8_e4m3fn float8_e5m2 uint16 uint32 uint64".split():
        dtypes[name] = torch.tensor([0, 1, 5]).to(getattr(torch, name))
    yield "dtypes", dtypes
    module = torch.nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 2.0]]))
        module.bias.copy_(torch.tensor([3.0]))
    yield "model", {
        "args": argparse.Namespace(
            num_layers=2,
            lr=1.5e-4,
            params_dtype=torch.bfloat16,
            attention_backend=Backend.auto,
            data_path=["a", "b"],
            seed=None,
        ),
        "checkpoint_version": 3.0,
        "iteration": 7,
        "model": module.state_dict(),
        "optimizer": {"state": {0: {"exp_avg": torch.ones(2, 1)}}, "param_groups": [{"lr": 0.1}]},
        "rng_state": [
            {
                "np_rng_state": np.random.RandomState(3).get_state(),
                "torch_rng_state": torch.tensor([1, 2, 3], dtype=torch.uint8),
            }
        ],
        "array": np.asfortranarray([[1.0, 2.0], [3.0, 4.0]]),
        "scalar": np.float64(2.5),
        "extra_state": io.BytesIO(b"fp8\x00\xff"),
        "size": torch.Size([4, 5]),
    }


def tensors_of(value, name=""):
    """The tensors in nested dicts, lists and tuples, in order."""
    if isinstance(value, torch.Tensor):
        yield name, value.detach()
    elif isinstance(value, (dict, list, tuple)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from tensors_of(item, f"{name}.{key}" if name else str(key))


def described(name, tensor):
    return dict(
        name=name,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=list(tensor.shape),
        strides=list(tensor.stride()),
        offset=tensor.storage_offset(),
        hex=bytes(tensor.contiguous().flatten().view(torch.uint8).tolist()).hex(),
    )


def write_torch_files():
    described_files = {}
    for name, content in contents():
        for suffix, new in (("", True), ("_legacy", False)):
            path = OUTPUT / f"{name}{suffix}.pt"
            torch.save(content, path, _use_new_zipfile_serialization=new)
            assert path.stat().st_size < 20_000, path
            described_files[path.name] = [described(*item) for item in tensors_of(content)]
    (OUTPUT / "torch_files.json").write_text(json.dumps(described_files, indent=1) + "\n")


def write_dcp():
    folder = OUTPUT / "dcp"
    shutil.rmtree(folder, ignore_errors=True)
    state = {
        "w": torch.arange(12, dtype=torch.float32).reshape(3, 4),
        "b": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "s": torch.tensor(5),
        "step": 3,
        "nested": {"list": [torch.ones(2), "text"]},
    }
    dcp.save(state, checkpoint_id=folder.name, no_dist=True)
    flat = {"w": state["w"], "b": state["b"], "s": state["s"], "nested.list.0": torch.ones(2)}
    (OUTPUT / "dcp.json").write_text(
        json.dumps([described(*item) for item in flat.items()], indent=1) + "\n"
    )


def write_torch_dist():
    """A tensor in two shards, one for each of two layers, and an object, as megatron-core saves."""
    mcore_cpu.init()
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor
    from megatron.core.dist_checkpointing.strategies import filesystem_async

    threads = types.SimpleNamespace(
        Queue=queue.Queue, JoinableQueue=queue.Queue, Process=threading.Thread
    )
    threads.Manager = lambda: threads
    filesystem_async.mp = types.SimpleNamespace(get_context=lambda _: threads)
    filesystem_async._process_memory = lambda: 0  # which needs psutil

    folder = OUTPUT / "torch_dist"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    weight = torch.arange(24, dtype=torch.float32).reshape(2, 4, 3)
    key = "decoder.layers.mlp.linear_fc1.weight"

    def shard(layer, part):
        rows = weight[layer, 2 * part : 2 * part + 2].clone()
        return ShardedTensor.from_rank_offsets(
            key, rows, (0, layer, 2), (1, part, 2), prepend_axis_num=1
        )

    state = {
        "model": {f"{layer}.{part}": shard(layer, part) for layer in (0, 1) for part in (0, 1)},
        "rng": [ShardedObject("rng_state", [{"seed": i}], (1, 2), (0, i)) for i in (0, 1)],
        "args": argparse.Namespace(num_layers=2),
        "iteration": 5,
    }
    dist_checkpointing.save(state, folder.name)
    flat = {key: weight}
    (OUTPUT / "torch_dist.json").write_text(
        json.dumps([described(*item) for item in flat.items()], indent=1) + "\n"
    )


def write_old_index():
    """The index of dcp/ with the module names of PyTorch 1.13, before some members existed."""
    old = (OUTPUT / "dcp/.metadata").read_bytes()
    data = pickle.loads(old)
    names = types.SimpleNamespace(
        metadata="torch.distributed._shard.checkpoint.metadata",
        filesystem="torch.distributed._shard.checkpoint.filesystem",
        tensor="torch.distributed._shard.sharded_tensor.metadata",
    )

    def clone(module, name, **attributes):
        holder = sys.modules.setdefault(module, types.ModuleType(module))
        if not hasattr(holder, name):
            setattr(holder, name, type(name, (), {"__module__": module}))
        copy = object.__new__(getattr(holder, name))
        copy.__dict__.update(attributes)
        return copy

    entries = {}
    for key, value in data.state_dict_metadata.items():
        if hasattr(value, "chunks"):
            chunks = [
                clone(names.metadata, "ChunkStorageMetadata", **vars(chunk))
                for chunk in value.chunks
            ]
            properties = clone(names.tensor, "TensorProperties", dtype=value.properties.dtype)
            entries[key] = clone(
                names.metadata,
                "TensorStorageMetadata",
                properties=properties,
                size=value.size,
                chunks=chunks,
            )
        else:
            entries[key] = clone(names.metadata, "BytesStorageMetadata")
    stored = {}
    for index, info in data.storage_data.items():
        at = dict(vars(index))
        at.setdefault("offset", None)
        facts = {name: getattr(info, name) for name in ("relative_path", "offset", "length")}
        stored[clone(names.metadata, "MetadataIndex", **at)] = clone(
            names.filesystem, "_StorageInfo", **facts
        )
    root = clone(
        names.metadata,
        "Metadata",
        state_dict_metadata=entries,
        planner_data=None,
        storage_data=stored,
    )
    (OUTPUT / "old_index.pkl").write_bytes(pickle.dumps(root, 4))


def write_gguf():
    """A value of each type, arrays, and a tensor of each type that is read."""
    types = gguf.GGUFValueType
    values = {
        "u8": (255, types.UINT8),
        "i8": (-128, types.INT8),
        "u16": (65535, types.UINT16),
        "i16": (-32768, types.INT16),
        "u32": (2**32 - 1, types.UINT32),
        "i32": (-(2**31), types.INT32),
        "f32": (1.5, types.FLOAT32),
        "bool": (True, types.BOOL),
        "text": ("é\n🙂", types.STRING),
        "u64": (2**64 - 1, types.UINT64),
        "i64": (-(2**63), types.INT64),
        "f64": (0.1, types.FLOAT64),
        "numbers": ([1, -2, 3], types.ARRAY),
        "fractions": ([0.5, -2.0], types.ARRAY),
        "texts": (["", "a b", "ß"], types.ARRAY),
        "flags": ([True, False], types.ARRAY),
    }
    rows = np.linspace(-3, 5, 128, dtype=np.float32).reshape(2, 64)
    rows[1, 32:] = 0  # a block without a scale
    kinds = gguf.GGMLQuantizationType
    tensors = {
        "f32": (rows[:, :5].copy(), kinds.F32),
        "f16": (rows[0, :7].astype(np.float16), kinds.F16),
        "bf16": (rows[:1], kinds.BF16),
        "q8_0": (rows, kinds.Q8_0),
    }
    path = OUTPUT / "model.gguf"
    writer = gguf.GGUFWriter(path, "test")
    for key, (value, type_) in values.items():
        writer.add_key_value(f"test.{key}", value, type_)
    listed = []
    for name, (data, kind) in tensors.items():
        stored = data
        if kind in (kinds.BF16, kinds.Q8_0):
            stored = gguf.quants.quantize(data, kind)
            writer.add_tensor(name, stored, raw_dtype=kind)
        else:
            writer.add_tensor(name, data)
        numbers = gguf.quants.dequantize(stored, kind).flatten().tolist()
        facts = dict(name=name, shape=list(data.shape), type=kind.name, hex=stored.tobytes().hex())
        listed.append(dict(facts, numbers=numbers, from_numbers=data.flatten().tolist()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    facts = dict(metadata={f"test.{k}": v for k, (v, _) in values.items()}, tensors=listed)
    (OUTPUT / "gguf.json").write_text(json.dumps(facts) + "\n")


def main():
    OUTPUT.mkdir(parents=True, exist_ok=True)
    os.chdir(OUTPUT)  # indices have the path of their folder
    write_pickles()
    write_torch_files()
    write_dcp()
    write_old_index()
    write_torch_dist()
    write_gguf()


if __name__ == "__main__":
    main()
