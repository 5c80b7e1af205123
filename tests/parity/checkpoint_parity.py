"""Opens our files with the real packages.

It reads safetensors under Megatron Core's names and layouts, directories with transformers' loader,
and caches with numpy."""
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

import checkpoint_files
import corpus
import hf_models
import hf_variants
import program
from report import Report

torch.set_num_threads(1)
SMALL_FLAGS = [
    "--num-layers",
    2,
    "--hidden-size",
    64,
    "--num-attention-heads",
    4,
    "--max-position-embeddings",
    64,
]
LLAMA_FLAGS = [
    "--normalization",
    "RMSNorm",
    "--position-embedding-type",
    "rope",
    "--swiglu",
    "--disable-bias-linear",
    "--untie-embeddings-and-output-weights",
    "--group-query-attention",
    "--num-query-groups",
    2,
]
EXPORTS = {
    "gpt2": ["--openai-gelu"],
    "llama": [*LLAMA_FLAGS, "--use-rope-scaling"],
    "qwen2": [*LLAMA_FLAGS, "--add-qkv-bias"],
    "qwen3": [*LLAMA_FLAGS, "--qk-layernorm", "--kv-channels", 24],
    "mistral": [*LLAMA_FLAGS, "--window-size", "6,0"],
}


def grouped_qkv(query, key, value, groups):
    """Megatron Core's linear_qkv rows: for every group its queries, its key, its value."""
    parts = [
        np.concatenate(parts)
        for parts in zip(*(np.split(tensor, groups) for tensor in (query, key, value)))
    ]
    return np.concatenate(parts)


def expected_from_llama(hf, config):
    """Transformer-Engine names and layouts of a Llama-like directory."""
    expected = {
        "embedding.word_embeddings.weight": hf["model.embed_tokens.weight"],
        "decoder.final_layernorm.weight": hf["model.norm.weight"],
    }
    if not config.tie_word_embeddings:
        expected["output_layer.weight"] = hf["lm_head.weight"]
    for layer in range(config.num_hidden_layers):
        source, target = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        attention, mlp = source + "self_attn.", source + "mlp."
        for part in ("weight", "bias"):
            if f"{attention}q_proj.{part}" in hf:
                expected[f"{target}self_attention.linear_qkv.{part}"] = grouped_qkv(
                    *(hf[f"{attention}{name}_proj.{part}"] for name in "qkv"),
                    config.num_key_value_heads,
                )
        for name in ("q", "k"):
            if f"{attention}{name}_norm.weight" in hf:
                expected[f"{target}self_attention.{name}_layernorm.weight"] = hf[
                    f"{attention}{name}_norm.weight"
                ]
        expected[target + "self_attention.linear_proj.weight"] = hf[attention + "o_proj.weight"]
        expected[target + "self_attention.linear_qkv.layer_norm_weight"] = hf[
            source + "input_layernorm.weight"
        ]
        expected[target + "mlp.linear_fc1.layer_norm_weight"] = hf[
            source + "post_attention_layernorm.weight"
        ]
        expected[target + "mlp.linear_fc1.weight"] = np.concatenate(
            [hf[mlp + "gate_proj.weight"], hf[mlp + "up_proj.weight"]]
        )
        expected[target + "mlp.linear_fc2.weight"] = hf[mlp + "down_proj.weight"]
    return expected


def expected_from_gpt2(hf, config):
    """Gives a GPT-2 directory Transformer-Engine names and layouts.
    Conv1D is transposed, q|k|v becomes per head."""
    plain = {
        "wte.weight": "embedding.word_embeddings.weight",
        "wpe.weight": "embedding.position_embeddings.weight",
        "ln_f.weight": "decoder.final_layernorm.weight",
        "ln_f.bias": "decoder.final_layernorm.bias",
    }
    expected = {target: hf["transformer." + source] for source, target in plain.items()}
    for layer in range(config.n_layer):
        source, target = f"transformer.h.{layer}.", f"decoder.layers.{layer}."
        for part in ("weight", "bias"):
            rows = {
                name: np.ascontiguousarray(hf[f"{source}{name}.{part}"].T)
                for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
            }
            expected[f"{target}self_attention.linear_qkv.{part}"] = grouped_qkv(
                *np.split(rows["attn.c_attn"], 3), config.n_head
            )
            expected[f"{target}self_attention.linear_proj.{part}"] = rows["attn.c_proj"]
            expected[f"{target}mlp.linear_fc1.{part}"] = rows["mlp.c_fc"]
            expected[f"{target}mlp.linear_fc2.{part}"] = rows["mlp.c_proj"]
            expected[f"{target}self_attention.linear_qkv.layer_norm_{part}"] = hf[
                f"{source}ln_1.{part}"
            ]
            expected[f"{target}mlp.linear_fc1.layer_norm_{part}"] = hf[f"{source}ln_2.{part}"]
    return expected


def compare_exactly(report, name, found, expected):
    missing, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    different = sorted(
        key
        for key in expected.keys() & found.keys()
        if found[key].shape != expected[key].shape
        or found[key].tobytes() != np.ascontiguousarray(expected[key]).tobytes()
    )
    passed = not (missing or extra or different)
    report.result(
        name,
        passed,
        f"{len(expected)} tensors"
        if passed
        else f"missing {missing}, unexpected {extra}, different {different}",
    )


def check_layout(report, variant, work):
    """Converts a Hugging Face directory to our checkpoint, and that back.
    Names and bytes of the checkpoint must be right; transformers loads the directory that comes
    back with nothing missing."""
    model = hf_models.save(variant, work / "hf")
    ours = program.convert(work / "hf", work / "ours", "megatron")
    expected = (expected_from_gpt2 if model.config.model_type == "gpt2" else expected_from_llama)(
        program.read_hf(work / "hf"), model.config
    )
    compare_exactly(
        report,
        f"{variant.name}, names and layouts in our safetensors",
        checkpoint_files.read_weights(ours),
        expected,
    )
    back = program.convert(ours, work / "back", "hf")
    loaded, notes = AutoModelForCausalLM.from_pretrained(back, output_loading_info=True)
    problems = {key: value for key, value in notes.items() if value}
    same = all(
        torch.equal(parameter, dict(model.named_parameters())[name])
        for name, parameter in loaded.named_parameters()
    )
    report.result(
        f"{variant.name}, transformers loads our directory",
        same and not problems,
        str(problems or ""),
    )


def check_half_precision(report, dtype, work):
    """Checks that half-precision weights come back as they were.
    So do unknown config keys and the files beside them."""
    model = hf_models.build(LlamaConfig(**hf_variants.COMMON, vocab_size=131), seed=7).to(dtype)
    model.save_pretrained(work / "hf")
    config = json.loads((work / "hf/config.json").read_text()) | {
        "a_key_of_tomorrow": {"list": [1, 2.5, None]}
    }
    (work / "hf/config.json").write_text(json.dumps(config))
    (work / "hf/tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    program.convert(work / "hf", work / "ours", "megatron")
    back = program.convert(work / "ours", work / "back", "hf")
    before, after = (load_file(folder / "model.safetensors") for folder in (work / "hf", back))
    same = before.keys() == after.keys() and all(
        before[key].dtype == after[key].dtype and torch.equal(before[key], after[key])
        for key in before
    )
    report.result(f"{dtype} weights after the round trip", same, f"{len(before)} tensors")
    kept = (
        json.loads((back / "config.json").read_text()) == config
        and (back / "tokenizer_config.json").read_bytes()
        == (work / "hf/tokenizer_config.json").read_bytes()
    )
    report.result(f"{dtype}, config.json and carried files after the round trip", kept)


def check_export(report, family, flags, work):
    """Checks that a model that began here becomes a directory of the family that can hold it.
    transformers gives the same log-probabilities as `score`."""
    samples = corpus.make(work, vocab_size=131, seq_length=40)
    program.pretrain(
        samples,
        [
            *SMALL_FLAGS,
            *flags,
            "--init-method-std",
            0.1,
            "--train-iters",
            3,
            "--micro-batch-size",
            1,
            "--global-batch-size",
            1,
            "--lr",
            0.05,
            "--lr-decay-style",
            "constant",
            "--clip-grad",
            0,
            "--save",
            work / "ours",
            "--save-interval",
            3,
        ],
    )
    model = AutoModelForCausalLM.from_pretrained(
        program.convert(work / "ours", work / "hf", "hf"), attn_implementation="eager"
    ).eval()
    ours = [answer["logprobs"] for answer in program.score(work / "ours", samples.rows)]
    report.close(
        f"export to {family}, log-probabilities",
        ours,
        hf_models.log_probabilities(model, samples.rows),
    )
    report.result(
        f"export to {family}, model_type",
        model.config.model_type == family,
        model.config.model_type,
    )


def check_optimizer_state(report, samples, work):
    """An Adam checkpoint holds two moments per weight, of its shape."""
    program.pretrain(
        samples,
        [
            *SMALL_FLAGS,
            "--train-iters",
            2,
            "--micro-batch-size",
            2,
            "--global-batch-size",
            2,
            "--lr",
            0.01,
            "--save",
            work / "adam",
            "--save-interval",
            2,
            "--data-cache-path",
            work / "cache",
        ],
    )
    weights, moments = checkpoint_files.read_weights(work / "adam"), checkpoint_files.read_tensors(
        work / "adam", "optimizer"
    )
    shapes_agree = all(
        any(name.endswith(weight) and moment.shape == weights[weight].shape for weight in weights)
        for name, moment in moments.items()
    )
    report.result(
        "Adam moments open with safetensors",
        len(moments) == 2 * len(weights) and shapes_agree,
        f"{len(moments)} tensors, {len(weights)} weights",
    )


def check_caches(report, samples, work):
    """The index caches that training left open with numpy and hold what megatron-core's hold."""
    reference = {
        path.name.split("-", 1)[1]: np.load(path)
        for path in Path(f"{samples.prefix}-reference-cache").glob("*.npy")
    }
    found = {path.name.split("-", 1)[1]: np.load(path) for path in (work / "cache").rglob("*.npy")}
    kinds = sorted({name.rsplit("-", 1)[1] for name in found})
    report.result(
        "index caches open with numpy",
        kinds == ["document_index.npy", "sample_index.npy", "shuffle_index.npy"],
        ", ".join(sorted(found)),
    )
    same = [
        name
        for name in reference
        if name in found
        and reference[name].dtype == found[name].dtype
        and np.array_equal(reference[name], found[name])
    ]
    report.result(
        "index caches equal megatron-core's",
        len(same) == len(reference) > 0,
        f"{len(same)} of {sorted(reference)}",
    )


def main():
    report = Report()
    chosen = ("gpt2", "llama gqa llama3 rope", "qwen2", "qwen3 tied yarn")
    for variant in hf_models.all_variants():
        if variant.name in chosen:
            with tempfile.TemporaryDirectory() as work, report.guard(variant.name):
                check_layout(report, variant, Path(work))
    for dtype in (torch.bfloat16, torch.float16):
        with tempfile.TemporaryDirectory() as work, report.guard(str(dtype)):
            check_half_precision(report, dtype, Path(work))
    for family, flags in EXPORTS.items():
        with tempfile.TemporaryDirectory() as work, report.guard(f"export to {family}"):
            check_export(report, family, flags, Path(work))
    with tempfile.TemporaryDirectory() as work, report.guard("optimizer state and caches"):
        samples = corpus.make(work, vocab_size=131, seq_length=40)
        check_optimizer_state(report, samples, Path(work))
        check_caches(report, samples, Path(work))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
