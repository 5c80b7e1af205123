"""Compares 16 bits with PyTorch's own.

Gradients and scores of every family in bfloat16, and the training curve, must each be no farther
from float32 than PyTorch's."""
import copy
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, GPT2Config

import corpus
import hf_models
import hf_variants
import hf_parity
import program
from report import Report

torch.set_num_threads(1)
FAMILIES = ("gpt2", "llama gqa llama3 rope", "mistral sliding window", "qwen2", "qwen3")
STEPS, BATCH, SEQ_LENGTH, LEARNING_RATE = 50, 8, 64, 5e-4  # of the training curve


def rounded_to_bfloat16(model):
    """The same weights in float32 and in bfloat16."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16().float())
    return model


def distance(found, exact):
    """Root mean square over tensors of ‖found − exact‖ / ‖exact‖."""
    ratios = [
        np.linalg.norm(np.asarray(found[name], np.float64) - exact[name])
        / np.linalg.norm(exact[name])
        for name in exact
    ]
    return float(np.sqrt(np.mean(np.square(ratios))))


def torch_gradients(directory, rows, kind):
    model = AutoModelForCausalLM.from_pretrained(
        directory,
        attn_implementation="eager",
        dtype=torch.float32 if kind == "autocast" else torch.bfloat16,
    ).eval()
    rows = torch.as_tensor(np.asarray(rows))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast"):
        logits = model(rows[:, :-1]).logits
    torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), rows[:, 1:].flatten()
    ).backward()
    return {name: parameter.grad.float().numpy() for name, parameter in model.named_parameters()}


def our_gradients(directory, work, samples, exact, flags):
    """Returns (W − W')/lr from the main parameters of one step.
    A run in float32 that changes nothing widens the checkpoint."""
    name = "-".join(["step", *map(str, flags)]).replace("--", "")
    program.sgd_step(samples, directory, work / name, extra=flags)
    program.pretrain(
        samples,
        [
            "--load",
            work / name,
            "--save",
            work / f"{name}-wide",
            "--finetune",
            "--train-iters",
            1,
            "--micro-batch-size",
            1,
            "--global-batch-size",
            1,
            "--optimizer",
            "sgd",
            "--lr",
            1e-30,
            "--lr-decay-style",
            "constant",
            "--weight-decay",
            0,
            "--sgd-momentum",
            0,
        ],
    )
    after = program.read_hf(program.convert(work / f"{name}-wide", work / f"{name}-hf", "hf"))
    before = program.read_hf(directory)
    spelled = {
        key: next(value for full, value in exact.items() if full.endswith(key)) for key in before
    }
    return (
        hf_parity.rename(program.gradients(before, hf_parity.rename(after, before)), spelled),
        spelled,
    )


def check_gradients(report, variant, work):
    directory = work / "hf"
    model = rounded_to_bfloat16(hf_models.build(variant.config, 7))
    model.save_pretrained(directory)
    samples = corpus.make(
        work, vocab_size=model.config.vocab_size, seq_length=hf_variants.SEQ_LENGTH
    )
    _, exact = hf_models.loss_and_gradients(model, samples.rows)
    for peer, flags in (
        ("in bfloat16", ["--bf16"]),
        ("autocast", ["--bf16", "--fp32-residual-connection"]),
    ):
        theirs = distance(torch_gradients(directory, samples.rows, peer), exact)
        found, spelled = our_gradients(directory, work, samples, exact, flags)
        ours = distance(found, spelled)
        report.result(
            f"{variant.name}, gradients {' '.join(flags)}",
            ours <= theirs,
            f"{ours:.2e} from float32, PyTorch {peer} {theirs:.2e}",
        )


def check_scores(report, variant, work):
    """Weights stored in bfloat16 are scored in bfloat16, or in float32 on request."""
    model = rounded_to_bfloat16(hf_models.build(variant.config, 7))
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(work / "hf-bf16")
    rows = np.random.default_rng(3).integers(
        0, model.config.vocab_size, (3, hf_variants.SEQ_LENGTH + 1)
    )
    exact = hf_models.log_probabilities(model, rows)
    half = hf_models.log_probabilities(
        AutoModelForCausalLM.from_pretrained(work / "hf-bf16", dtype=torch.bfloat16), rows
    )
    answers = [answer["logprobs"] for answer in program.score(work / "hf-bf16", rows)]
    ours, theirs = (
        float(np.abs(np.asarray(found, np.float64) - exact).mean()) for found in (answers, half)
    )
    report.result(
        f"{variant.name}, log-probabilities in bfloat16",
        0 < ours <= theirs,
        f"{ours:.2e} from float32, transformers {theirs:.2e}",
    )
    wide = [answer["logprobs"] for answer in program.score(work / "hf-bf16", rows, ["--fp32"])]
    report.close(f"{variant.name}, log-probabilities with --fp32", wide, exact)


def torch_curve(directory, rows, bfloat16):
    model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        batch = torch.as_tensor(rows[step * BATCH : (step + 1) * BATCH])
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            logits = model(batch[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def our_curve(directory, samples, flags):
    output = program.pretrain(
        samples,
        [
            "--load",
            directory,
            "--train-iters",
            STEPS,
            "--micro-batch-size",
            BATCH,
            "--global-batch-size",
            BATCH,
            "--optimizer",
            "adam",
            "--lr",
            LEARNING_RATE,
            "--lr-decay-style",
            "constant",
            "--weight-decay",
            0,
            "--clip-grad",
            1.0,
            "--adam-eps",
            1e-8,
            *flags,
        ],
    )
    return np.array(program.log_values(output, "lm loss"))


def text_samples(work):
    """Returns rows of bytes of a real text: the source of torch/functional.py.
    An end-of-document token stands every 2,000 bytes."""
    text = Path(torch.functional.__file__).read_bytes()
    documents = [
        np.append(np.frombuffer(text[i : i + 2000], dtype=np.uint8).astype(np.int64), 256)
        for i in range(0, len(text), 2000)
    ]
    prefix = str(work / "text")
    corpus.write_indexed_dataset(prefix, documents)
    rows = corpus.training_samples(
        prefix, seq_length=SEQ_LENGTH, seed=1234, num_samples=STEPS * BATCH, vocab_size=257
    )
    return corpus.Corpus(prefix, 257, SEQ_LENGTH, STEPS * BATCH, 1234, rows)


def check_curve(report, work):
    """Compares mean distances of the loss from its own float32 curve over the run.
    The runs start from the same weights and see the same samples. Runs amplify differences by very
    different factors, so the mean over runs is geometric."""
    config = GPT2Config(
        vocab_size=257,
        n_positions=SEQ_LENGTH,
        n_embd=64,
        n_layer=3,
        n_head=4,
        bos_token_id=None,
        eos_token_id=None,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    samples = text_samples(work)
    distances, fp32 = {"autocast": [], "--bf16": [], "--bf16 --fp32-residual-connection": []}, []
    for seed in range(20, 25):
        directory = work / f"gpt2-{seed}"
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(config).save_pretrained(directory)
        their_fp32, our_fp32 = torch_curve(directory, samples.rows, False), our_curve(
            directory, samples, []
        )
        fp32.append(np.abs(our_fp32 - their_fp32).max() / their_fp32.max())
        for name, found in distances.items():
            curve = (
                torch_curve(directory, samples.rows, True)
                if name == "autocast"
                else our_curve(directory, samples, name.split())
            )
            found.append(np.abs(curve - our_fp32).mean())
    mean = {name: float(np.exp(np.mean(np.log(found)))) for name, found in distances.items()}
    report.result(
        "training curve in float32",
        max(fp32) < 1e-4,
        f"largest relative distance {max(fp32):.1e} over {STEPS} steps",
    )
    report.result(
        "training curve in bfloat16",
        max(mean["--bf16"], mean["--bf16 --fp32-residual-connection"]) <= mean["autocast"],
        ", ".join(f"{name} {value:.2e}" for name, value in mean.items())
        + f" from float32 ({STEPS} steps of AdamW, 5 initialisations)",
    )


def main():
    report = Report()
    variants = {variant.name: variant for variant in hf_models.all_variants()}
    for name in FAMILIES:
        with tempfile.TemporaryDirectory() as work:
            with report.guard(f"{name}, gradients"):
                check_gradients(report, variants[name], Path(work))
            with report.guard(f"{name}, scores"):
                check_scores(report, variants[name], Path(work))
    with tempfile.TemporaryDirectory() as work, report.guard("training curve"):
        check_curve(report, Path(work))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
