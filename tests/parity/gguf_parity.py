"""Writes GGUF files, reads them with the real packages, and reads files as llama.cpp's own
conversion writes them.

The package `gguf` reads our tensors, which must be the model's to the last bit, or as its own
quantisation gives them. Files in the layout of convert_hf_to_gguf.py, made here with its
GGUFWriter, must become the folder that they were made from. Where LLAMA_CPP_VENV names an
environment with llama-cpp-python, as for bench/inference, llama.cpp loads our files and continues
prompts with the tokens of `megatron generate`, and divides texts into the same ids."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import tokenizers
import torch
from safetensors.torch import load_file
from transformers import (
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

import hf_models
import program
from hf_variants import LLAMA3_SCALING, Variant
from report import Report

torch.set_num_threads(1)
VOCAB, NUM_NEW = 131, 12
PROMPTS = [[1], [5, 9, 100, 3, 77, 8, 8], list(range(2, 40))]
SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
)
WIDE = dict(SIZES, head_dim=32, sliding_window=16)
EXPERTS = dict(SIZES, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32)
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "llama biases, tied": LlamaConfig(
        **SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
    "llama llama3 rope": LlamaConfig(**SIZES, rope_parameters=LLAMA3_SCALING),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
    "mixtral": MixtralConfig(**SIZES, num_local_experts=6, num_experts_per_tok=2),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=32),
    "qwen2_moe": Qwen2MoeConfig(**EXPERTS, shared_expert_intermediate_size=64),
    "qwen3_moe": Qwen3MoeConfig(**EXPERTS, head_dim=32, norm_topk_prob=True),
    "granite": GraniteConfig(
        **SIZES, attention_multiplier=0.25, embedding_multiplier=2.0, logits_scaling=4.0
    ),
    "olmo2": Olmo2Config(**SIZES),
    "gemma": GemmaConfig(**SIZES, head_dim=32),
    "gemma2": Gemma2Config(**WIDE, query_pre_attn_scalar=32),
    "gemma3_text": Gemma3TextConfig(**WIDE, query_pre_attn_scalar=32),
}
PAIRED = ("llama", "mistral", "mixtral", "granite")  # llama.cpp rotates neighbouring channels
PEER = """
import ctypes, json, sys
import llama_cpp as lib
quiet = lib.llama_log_callback(lambda *_: None)
lib.llama_log_set(quiet, ctypes.c_void_p(0))
path, request = sys.argv[1], json.load(sys.stdin)
lib.llama_backend_init()
model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
assert model, "llama.cpp does not load " + path
vocab = lib.llama_model_get_vocab(model)
size = lib.llama_vocab_n_tokens(vocab)
params = lib.llama_context_default_params()
params.n_ctx, params.n_threads, params.n_threads_batch = 256, 1, 1
params.type_k = params.type_v = 0  # float32
answers = dict(ids=[], texts=[])
for prompt in request["prompts"]:
    context = lib.llama_init_from_model(model, params)
    ids = list(prompt)
    new = ids
    for _ in range(request["num_new"]):
        tokens = (lib.llama_token * len(new))(*new)
        assert lib.llama_decode(context, lib.llama_batch_get_one(tokens, len(new))) == 0
        row = lib.llama_get_logits_ith(context, -1)
        new = [max(range(size), key=lambda i: row[i])]
        ids += new
    answers["ids"].append(ids[len(prompt):])
    lib.llama_free(context)
for text in request["texts"]:
    data = text.encode()
    tokens = (lib.llama_token * (len(data) + 8))()
    count = lib.llama_tokenize(vocab, data, len(data), tokens, len(tokens), True, True)
    answers["texts"].append(list(tokens[:count]))
print(json.dumps(answers))
"""


def llama_cpp():
    """The interpreter of the environment with llama.cpp; nothing without one."""
    venv = os.environ.get("LLAMA_CPP_VENV")
    return str(Path(venv) / "bin/python") if venv else None


def ask_llama_cpp(path, prompts=(), texts=()):
    request = dict(prompts=list(prompts), texts=list(texts), num_new=NUM_NEW)
    done = subprocess.run(
        [llama_cpp(), "-c", PEER, str(path)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def our_texts(load, work):
    (work / "prompts.txt").write_text(
        "".join(" ".join(map(str, prompt)) + "\n" for prompt in PROMPTS)
    )
    done = program.run(
        "generate",
        *("--load", load, "--tokenizer-type", "NullTokenizer", "--vocab-size", VOCAB),
        *("--prompt-file", work / "prompts.txt", "--max-new-tokens", NUM_NEW),
        *("--temperature", 0, "--ignore-eos", "--json"),
    )
    lines = done.stdout.splitlines()
    return [json.loads(line)["ids"] for line in lines if line.startswith("{")]


def convert(load, save, kind, *flags):
    return program.run("convert", "--load", load, "--save", save, "--format", kind, *flags)


def stored_as(name, values, config):
    """What llama.cpp's conversion makes of a tensor of Hugging Face, in float32."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    kind = name.split(".")[-2]
    if config.model_type in PAIRED and kind in heads:
        rows = values.reshape(heads[kind], 2, -1, *values.shape[1:])
        values = rows.swapaxes(1, 2).reshape(values.shape)
    if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
        values = values + 1
    return values.squeeze(0) if name.endswith("shared_expert_gate.weight") else values


def expected_tensors(folder, config, architecture):
    """{GGUF name: float32 values} of a folder, with the package's own table of names."""
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tensors, stacks = {}, {}
    for name, tensor in sorted(load_file(folder / "model.safetensors").items()):
        values = stored_as(name, tensor.float().numpy(), config)
        if ".experts." in name:
            before, after = name.split(".experts.")
            number, rest = after.split(".", 1)
            name = f"{before}.experts.{rest}"
            stacks.setdefault(name, {})[int(number)] = values
            continue
        tensors[names.get_name(name, try_suffixes=(".weight", ".bias"))] = values
    for name, parts in stacks.items():
        stack = np.stack([parts[i] for i in sorted(parts)])
        tensors[names.get_name(name, try_suffixes=(".weight",))] = stack
    return tensors


def read_back(path):
    """{name: (type, float32 values)} of a file by the package."""
    found = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        found[tensor.name] = (tensor.tensor_type, values.reshape(tensor.shape.tolist()[::-1]))
    return found


def check_written(report, name, folder, config, work):
    """Compares the tensors of our files of each type. Returns the architecture."""
    architecture = None
    kinds = gguf.GGMLQuantizationType
    for flag, kind in (
        ("fp32", kinds.F32),
        ("bf16", kinds.BF16),
        ("fp16", kinds.F16),
        ("q8_0", kinds.Q8_0),
    ):
        convert(folder, work / flag, "gguf", "--dtype", flag)
        path = work / flag / "model.gguf"
        fields = gguf.GGUFReader(path).fields
        architecture = fields["general.architecture"].contents()
        found = read_back(path)
        expected = expected_tensors(folder, config, architecture)
        wrong = sorted((found.keys() ^ expected.keys()) - {"rope_freqs.weight"})
        for key in found.keys() & expected.keys():
            stored, values = found[key]
            wanted = expected[key].astype(np.float32)
            as_kind = kind if wanted.ndim > 1 and "ffn_gate_inp" not in key else kinds.F32
            if as_kind == kinds.F32 and kind in (kinds.BF16, kinds.F16):
                wanted = values if np.allclose(values, wanted, rtol=1e-2, atol=1e-3) else wanted
            if as_kind != kinds.F32:
                wanted = gguf.quants.dequantize(gguf.quants.quantize(wanted, as_kind), as_kind)
            if stored != as_kind or not np.array_equal(values, wanted.reshape(values.shape)):
                wrong.append(f"{key} ({stored.name})")
        report.result(f"{name}: gguf reads {flag}", not wrong, ", ".join(wrong[:5]))
    return architecture


def check_returned(report, name, load, folder, work, kind="exactly"):
    """A GGUF file becomes the folder that it was made from."""
    convert(load, work, "hf")
    ours, theirs = (load_file(place / "model.safetensors") for place in (work, folder))
    wrong = sorted(ours.keys() ^ theirs.keys())
    for key in ours.keys() & theirs.keys():
        error = (ours[key].float() - theirs[key].float()).abs().max().item()
        # A norm around one has lost the digits below 2^-24.
        wrong += [f"{key} by {error:.1e}"] * (error > (2e-2 if kind == "q8_0" else 3e-7))
    report.result(f"{name}: {kind} returned", not wrong, ", ".join(wrong[:5]))


def write_as_llama_cpp(folder, config, architecture, path):
    """Writes a file as convert_hf_to_gguf.py does."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if architecture in ("llama", "qwen2", "qwen3"):
        writer.add_rope_dimension_count(head_dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if getattr(config, "moe_intermediate_size", None):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if getattr(config, "shared_expert_intermediate_size", None):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if architecture == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if architecture in ("gemma2", "gemma3"):
        writer.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    for name, values in expected_tensors(folder, config, architecture).items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    if rope.get("rope_type") == "llama3":
        inverse = rope["rope_theta"] ** -(np.arange(0, head_dim, 2, dtype=np.float32) / head_dim)
        length, low, high = (
            rope[f"{key}"]
            for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
        )
        factors = []
        for wave in 2 * np.pi / inverse:
            smooth = (length / wave - low) / (high - low)
            scaled = 1 / ((1 - smooth) / rope["factor"] + smooth)
            factors.append(
                1 if wave < length / high else rope["factor"] if wave > length / low else scaled
            )
        writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_config(report, name, config, work):
    model = hf_models.save(Variant(name, config), work / "hf")
    del model
    folder = work / "hf"
    architecture = check_written(report, name, folder, config, work)
    check_returned(report, name, work / "fp32", folder, work / "back")
    check_returned(report, name, work / "q8_0/model.gguf", folder, work / "back8", "q8_0")
    write_as_llama_cpp(folder, config, architecture, work / "theirs.gguf")
    check_returned(report, f"{name} by GGUFWriter", work / "theirs.gguf", folder, work / "theirs")
    if not llama_cpp():
        return
    ours = our_texts(work / "fp32", work)
    report.result(f"{name}: generate from GGUF", ours == our_texts(folder, work))
    theirs = ask_llama_cpp(work / "fp32/model.gguf", PROMPTS)["ids"]
    report.result(f"{name}: llama.cpp's greedy tokens", theirs == ours, f"{theirs} {ours}")


def train_tokenizer(folder, regex):
    """A small byte-level BPE with a special token in front of texts."""
    pre = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    if regex:
        parts = [
            pre.Split(tokenizers.Regex(regex), "isolated"),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
        tokenizer.pre_tokenizer = pre.Sequence(parts)
    else:
        tokenizer.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|begin|>", "<|end|>"],
        initial_alphabet=pre.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([Path(__file__).read_text()], trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = dict(bos_token="<|begin|>", eos_token="<|end|>", chat_template="{{ messages }}")
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer


TEXTS = ["Hello  world's 12345\n\n x_y", "é 语言 🙂\t<|end|>tail", ""]
REGEXES = {
    "gpt-2": None,
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def check_tokenizer(report, pre, work):
    folder = work / "hf"
    hf_models.save(Variant(pre, LlamaConfig(**dict(SIZES, vocab_size=402))), folder)
    tokenizer = train_tokenizer(folder, REGEXES[pre])
    convert(folder, work / "gguf", "gguf")
    path = work / "gguf/model.gguf"
    fields = gguf.GGUFReader(path).fields
    facts = {key: fields[f"tokenizer.{key}"].contents() for key in ("ggml.pre", "chat_template")}
    expected = dict(chat_template="{{ messages }}") | {"ggml.pre": pre}
    report.result(f"tokenizer {pre}: metadata", facts == expected, str(facts))
    wanted = [tokenizer.encode(text).ids for text in TEXTS]
    convert(path, work / "back", "hf")
    returned = tokenizers.Tokenizer.from_file(str(work / "back/tokenizer.json"))
    found = [returned.encode(text).ids for text in TEXTS]
    report.result(f"tokenizer {pre}: returned", found == wanted, f"{found} {wanted}")
    if llama_cpp():
        theirs = ask_llama_cpp(path, texts=TEXTS)["texts"]
        report.result(f"tokenizer {pre}: llama.cpp's ids", theirs == wanted, f"{theirs} {wanted}")


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as root:
        for number, (name, config) in enumerate(CONFIGS.items()):
            with report.guard(name):
                work = Path(root) / str(number)
                work.mkdir()
                check_config(report, name, config, work)
        for pre in REGEXES:
            with report.guard(f"tokenizer {pre}"):
                work = Path(root) / pre
                work.mkdir()
                check_tokenizer(report, pre, work)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
