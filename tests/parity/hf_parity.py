"""Compares Hugging Face directories with the real transformers.

It compares log-probabilities, loss, every gradient, greedy text, the round trip, and refusals."""
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoTokenizer, GPT2Config, LlamaConfig

import corpus
import hf_models
import hf_variants
import program
from report import Report

torch.set_num_threads(1)
IGNORED_CONFIG_KEYS = {"transformers_version", "_name_or_path", "use_cache", "quantization_config"}


def check_forward(report, variant, directory, model):
    name = variant.name
    rows = np.random.default_rng(3).integers(
        0, model.config.vocab_size, (3, hf_variants.SEQ_LENGTH + 1)
    )
    answers = program.score(directory, rows)
    expected, tolerance = hf_models.reference(
        variant, model, lambda model: hf_models.log_probabilities(model, rows)
    )
    ours = [answer["logprobs"] for answer in answers]
    report.close(f"{name}, log-probabilities", ours, expected, tolerance)
    report.close(
        f"{name}, score's loss",
        [answer["loss"] for answer in answers],
        -expected.astype(np.float64).mean(1),
    )


def check_gradients(report, variant, directory, published, model, work, samples):
    name = variant.name
    (loss, expected), tolerance = hf_models.reference(
        variant, model, lambda model: hf_models.loss_and_gradients(model, samples.rows)
    )
    fixes_bias = any(hf_models.is_correction_bias(name) for name in model.state_dict())
    flags = ["--moe-router-bias-update-rate", 0] if fixes_bias else []
    network = "hybrid" if model.config.model_type in hf_variants.HYBRID_TYPES else "gpt"
    measured_loss = program.sgd_step(samples, directory, work / "stepped", flags, model=network)
    after = program.read_hf(program.convert(work / "stepped", work / "stepped-hf", "hf"))
    before = {
        key: tensor for key, tensor in program.read_hf(published).items() if not is_buffer(key)
    }
    spelled = {
        key: next(value for full, value in expected.items() if full.endswith(key)) for key in before
    }
    report.close(f"{name}, loss", measured_loss, loss)
    report.close_tensors(
        f"{name}, gradients",
        rename(program.gradients(before, rename(after, before)), spelled),
        spelled,
        tolerance,
    )


def is_buffer(key):
    """GPT-2's causal-mask buffers, which its first checkpoints carry beside the weights."""
    return key.endswith(".attn.bias")


def rename(tensors, like):
    """Puts GPT-2's two spellings (with and without `transformer.`) on the names used in `like`."""
    return {
        next(
            (
                key
                for key in like
                if key == name or name == f"transformer.{key}" or key == f"transformer.{name}"
            ),
            name,
        ): tensor
        for name, tensor in tensors.items()
    }


def check_round_trip(report, name, directory, published, work):
    program.convert(directory, work / "ours", "megatron")
    back = program.convert(work / "ours", work / "back", "hf")
    before = {
        key: tensor for key, tensor in program.read_hf(published).items() if not is_buffer(key)
    }
    after = rename(program.read_hf(back), before)
    differing = sorted(
        key for key in before if key not in after or before[key].tobytes() != after[key].tobytes()
    )
    extra = sorted(set(after) - set(before))
    report.result(
        f"{name}, tensors after the round trip",
        not differing and not extra,
        f"{len(before)} tensors"
        if not differing and not extra
        else f"different or missing {differing}, unexpected {extra}",
    )
    wanted, found = (AutoConfig.from_pretrained(path).to_dict() for path in (directory, back))
    changed = {
        key: (wanted.get(key), found.get(key))
        for key in sorted(wanted.keys() | found.keys())
        if key not in IGNORED_CONFIG_KEYS and wanted.get(key) != found.get(key)
    }
    report.result(
        f"{name}, config after the round trip",
        not changed,
        f"{changed}" if changed else f"{len(wanted)} keys",
    )


def check_refusals(report, name, directory, work):
    """A missing, an extra and a misshapen tensor must each be named with exit code 2."""
    tensors = load_file(directory / "model.safetensors")
    victim = next(key for key in tensors if "layers.1" in key or "h.1" in key)
    broken = {
        "missing tensor": (
            {key: tensor for key, tensor in tensors.items() if key != victim},
            victim,
        ),
        "extra tensor": (
            dict(tensors, **{"model.surprise.weight": torch.ones(3)}),
            "model.surprise.weight",
        ),
        "misshapen tensor": (dict(tensors, **{victim: torch.ones(5, 7)}), victim),
    }
    for kind, (content, named) in broken.items():
        folder = work / kind.replace(" ", "-")
        folder.mkdir()
        (folder / "config.json").write_text((directory / "config.json").read_text())
        save_file(content, folder / "model.safetensors", metadata={"format": "pt"})
        with report.guard(f"{name}, {kind} is refused"):
            done = program.run(
                "convert",
                "--load",
                folder,
                "--save",
                work / "never",
                "--format",
                "megatron",
                expect=2,
            )
            message = done.stdout + done.stderr
            report.result(
                f"{name}, {kind} is refused",
                named in message,
                "" if named in message else f"{named} not named in: {message}",
            )


def check_greedy(report, name, directory, model, spellings=(("--temperature", 0),)):
    """Greedy decoding through the KV cache, ids as text of the NullTokenizer."""
    prompt = np.random.default_rng(5).integers(0, model.config.vocab_size - 1, 9).tolist()
    expected = until_end(hf_models.greedy(model, prompt, 24), model.config.vocab_size - 1)
    for flags in spellings:
        done = program.run(
            "generate",
            "--load",
            directory,
            "--tokenizer-type",
            "NullTokenizer",
            "--vocab-size",
            model.config.vocab_size,
            "--prompt",
            " ".join(map(str, prompt)),
            "--max-new-tokens",
            24,
            "--json",
            *flags,
        )
        found = generated_ids(done.stdout)
        report.result(
            f"{name}, greedy text with {flags[0]} {flags[1]}",
            found == expected,
            f"{len(found)} tokens" if found == expected else f"expected {expected}, got {found}",
        )


def until_end(ids, end):
    """Generation stops before the end-of-document token."""
    return ids[: ids.index(end)] if end in ids else ids


def generated_ids(output):
    answer = next(json.loads(line) for line in output.splitlines() if line.startswith("{"))
    return [int(token) for token in answer["text"].split()]


def check_variant(report, variant, work):
    directory = work / "hf"
    model = hf_models.save(variant, directory)
    published = directory
    if variant.stacked or variant.prepare or hf_variants.save_with_safetensors in variant.edits:
        published = work / "published"
        hf_models.published_tensors(model, published)
    samples = corpus.make(
        work, vocab_size=model.config.vocab_size, seq_length=hf_variants.SEQ_LENGTH
    )
    with report.guard(f"{variant.name}, forward"):
        check_forward(report, variant, directory, model)
    with report.guard(f"{variant.name}, gradients"):
        check_gradients(report, variant, directory, published, model, work, samples)
    with report.guard(f"{variant.name}, round trip"):
        check_round_trip(report, variant.name, directory, published, work)
    with report.guard(f"{variant.name}, greedy"):
        check_greedy(report, variant.name, directory, model)
        if variant.name == "gpt2":
            check_greedy(report, variant.name, directory, model, [("--top-k", 1)])
    if variant.name in ("gpt2", "qwen3", "mixtral", "qwen2_moe", "deepseek_v3"):
        check_refusals(report, variant.name, directory, work)


def check_dropout(report, work):
    """Training from a folder whose family has no dropout has none without any flag."""
    for variant in hf_models.all_variants():
        if variant.name not in ("llama mha", "qwen3", "mixtral"):
            continue
        folder = work / variant.name
        model = hf_models.save(variant, folder / "hf")
        samples = corpus.make(
            folder, vocab_size=model.config.vocab_size, seq_length=hf_variants.SEQ_LENGTH
        )
        flags = "--finetune --train-iters 1 --micro-batch-size 2 --optimizer sgd --lr 1e-3".split()
        output = program.pretrain(
            samples,
            ["--load", folder / "hf", "--global-batch-size", samples.num_samples, *flags],
            dropout=(),
        )
        report.close(
            f"{variant.name}, loss without flags of dropout",
            program.log_values(output, "lm loss"),
            [hf_models.loss_and_gradients(model, samples.rows)[0]],
        )


def check_half_precision(report, work):
    """bfloat16 weights are scored in bfloat16: near transformers' float32 on the same weights."""
    model = hf_models.build(LlamaConfig(**hf_variants.COMMON, vocab_size=131), seed=7).to(
        torch.bfloat16
    )
    model.save_pretrained(work / "hf")
    rows = np.random.default_rng(3).integers(0, 131, (3, hf_variants.SEQ_LENGTH + 1))
    expected = hf_models.log_probabilities(model.float(), rows)
    report.close(
        "llama bfloat16, log-probabilities",
        [answer["logprobs"] for answer in program.score(work / "hf", rows)],
        expected,
        tolerance=2e-2,
    )


def check_tokenizer_directory(report, work):
    """Checks a directory with its own tokenizer.json.
    `generate` needs no tokenizer flags, and its text equals transformers'."""
    text = (
        "the quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs. "
        * 20
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
    )
    tokenizer.train_from_iterator([text], trainer)
    size = tokenizer.get_vocab_size()
    variant = hf_variants.Variant(
        "tokenizer.json",
        GPT2Config(
            vocab_size=size,
            n_positions=64,
            n_embd=64,
            n_layer=2,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        ),
    )
    model = hf_models.save(variant, work / "hf")
    tokenizer.save(str(work / "hf/tokenizer.json"))
    prompt = "the lazy fox"
    expected = tokenizer.decode(
        until_end(hf_models.greedy(model, tokenizer.encode(prompt).ids, 20), 0)
    )
    done = program.run(
        "generate",
        "--load",
        work / "hf",
        "--prompt",
        prompt,
        "--max-new-tokens",
        20,
        "--temperature",
        0,
        "--json",
    )
    found = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))[
        "text"
    ]
    report.result(
        "greedy text with the directory's tokenizer.json",
        found.removeprefix(prompt) == expected,
        "" if found.removeprefix(prompt) == expected else f"expected {expected!r}, got {found!r}",
    )


def check_exported_tokenizers(report, work):
    """Checks that the tokenizer of a run goes with its weights.
    AutoTokenizer opens the exported folder and gives the ids that `generate` reads there."""
    text = (
        "the quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs. "
        * 20
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
    )
    tokenizer.train_from_iterator([text], trainer)
    (work / "pair").mkdir()
    (work / "whole").mkdir()
    tokenizer.model.save(str(work / "pair"))
    tokenizer.save(str(work / "whole/tokenizer.json"))
    kinds = {
        "HuggingFaceTokenizer": ["--tokenizer-model", work / "whole"],
        "GPT2BPETokenizer": [
            "--vocab-file",
            work / "pair/vocab.json",
            "--merge-file",
            work / "pair/merges.txt",
        ],
        "ByteTokenizer": [],
    }
    sizes = [
        "--num-layers",
        1,
        "--hidden-size",
        32,
        "--num-attention-heads",
        2,
        "--seq-length",
        64,
        "--micro-batch-size",
        2,
    ]
    for kind, flags in kinds.items():
        with report.guard(f"exported {kind}"):
            program.run(
                "pretrain",
                "gpt",
                *sizes,
                "--train-iters",
                1,
                "--lr",
                1e-3,
                "--mock-data",
                "--eval-iters",
                0,
                "--tokenizer-type",
                kind,
                *flags,
                "--save",
                work / kind,
            )
            directory = program.convert(work / kind, work / f"{kind}-hf", "hf")
            prompt = "The lazy fox, 12 jugs\nand a caf\u00e9"
            done = program.run(
                "generate", "--load", directory, "--prompt", prompt, "--max-new-tokens", 0, "--json"
            )
            ids = next(
                json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")
            )["prompt_ids"]
            theirs = AutoTokenizer.from_pretrained(directory)
            same = theirs(prompt)["input_ids"] == ids and theirs.decode(ids) == prompt
            ends = (
                theirs.eos_token_id
                == json.loads((directory / "config.json").read_text())["eos_token_id"]
            )
            report.result(
                f"exported {kind}, ids and end of text",
                same and ends,
                f"{len(ids)} ids"
                if same and ends
                else f"{theirs(prompt)['input_ids']} != {ids}, or eos {theirs.eos_token_id}",
            )


def main():
    report = Report()
    wanted = sys.argv[1:]
    for variant in hf_models.all_variants():
        if not wanted or variant.name in wanted:
            with tempfile.TemporaryDirectory() as work, report.guard(variant.name):
                check_variant(report, variant, Path(work))
    with tempfile.TemporaryDirectory() as work, report.guard("dropout of the family"):
        check_dropout(report, Path(work))
    with tempfile.TemporaryDirectory() as work, report.guard("llama bfloat16"):
        check_half_precision(report, Path(work))
    with tempfile.TemporaryDirectory() as work, report.guard("tokenizer.json"):
        check_tokenizer_directory(report, Path(work))
    with tempfile.TemporaryDirectory() as work, report.guard("exported tokenizers"):
        check_exported_tokenizers(report, Path(work))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
