"""Compares models whose rotary frequencies change for continued training with transformers.

A Llama of 256 positions continues at 1024 with every kind of scaling, on one rank and with context
parallelism. The peer is transformers with the same weights and the new rope_parameters."""
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import corpus
import hf_models
import hf_variants
import program
from report import Report

torch.set_num_threads(1)
TRAINED, EXTENDED, BASE = 256, 1024, 10000.0
VOCABULARY = 131
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=BASE,
    factor=4.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=TRAINED,
)
YARN = dict(
    rope_type="yarn", rope_theta=BASE, factor=4.0, original_max_position_embeddings=TRAINED
)
CASES = {
    "llama3": (
        LLAMA3,
        ["--use-rope-scaling", "--rope-scaling-factor", 4]
        + ["--rope-original-max-position-embeddings", TRAINED],
    ),
    "yarn": (
        YARN,
        ["--position-embedding-type", "yarn", "--rotary-scaling-factor", 4]
        + ["--yarn-original-max-position-embeddings", TRAINED],
    ),
    "interpolated": (
        dict(rope_type="linear", rope_theta=BASE, factor=4.0),
        ["--rotary-seq-len-interpolation-factor", 4],
    ),
    "another base": (
        dict(rope_type="default", rope_theta=80000.0),
        ["--rotary-base", 80000],
    ),
}
LAYOUTS = {"one rank": (1, []), "cp 2": (2, ["--context-parallel-size", 2])}


def llama(rope, positions):
    common = dict(hf_variants.COMMON, max_position_embeddings=positions)
    return LlamaConfig(
        **common, vocab_size=VOCABULARY, num_key_value_heads=2, rope_parameters=dict(rope)
    )


def extended_peer(model, rope):
    """The same weights with the new frequencies."""
    peer = AutoModelForCausalLM.from_config(
        llama(rope, EXTENDED), attn_implementation="eager", dtype=torch.float32
    ).eval()
    peer.load_state_dict(model.state_dict())
    return peer


def check_step(report, name, directory, peer, samples, layout, work):
    """One step at 1024 positions: its loss, every gradient, and what its checkpoint computes."""
    ranks, parallel = LAYOUTS[layout]
    _, flags = CASES[name]
    label = f"{name}, {layout}"
    loss, expected = hf_models.loss_and_gradients(peer, samples.rows)
    measured = program.sgd_step(
        samples, directory, work / "stepped", ["--finetune", *flags, *parallel], ranks
    )
    report.close(f"{label}, loss", measured, loss)
    stepped = program.convert(work / "stepped", work / "stepped-hf", "hf")
    before, after = program.read_hf(directory), program.read_hf(stepped)
    report.close_tensors(f"{label}, gradients", program.gradients(before, after), expected)


def check_checkpoint(report, name, directory, peer, samples, work):
    """A checkpoint after continued training keeps the frequencies: score, and transformers on the
    converted folder, equal the peer. Its weights are unchanged by a step of learning rate 0."""
    rope, flags = CASES[name]
    zero = ["--lr", 0, "--finetune", *flags]
    program.sgd_output(samples, directory, work / "kept", zero)
    converted = program.convert(work / "kept", work / "kept-hf", "hf")
    expected = hf_models.log_probabilities(peer, samples.rows)
    found = [answer["logprobs"] for answer in program.score(work / "kept", samples.rows)]
    report.close(f"{name}, log-probabilities of the checkpoint", found, expected)
    model = AutoModelForCausalLM.from_pretrained(converted, attn_implementation="eager").eval()
    report.close(
        f"{name}, log-probabilities of the converted folder",
        hf_models.log_probabilities(model, samples.rows),
        expected,
    )
    named = model.config.rope_parameters
    wrong = {key: (value, named.get(key)) for key, value in rope.items() if named.get(key) != value}
    report.result(f"{name}, rope_parameters of the converted folder", not wrong, str(wrong or ""))
    positions = model.config.max_position_embeddings
    report.result(f"{name}, positions of the converted folder", positions == EXTENDED, positions)


def check_refusal(report, name, directory, samples, work):
    """Without --finetune, other frequencies contradict the model."""
    done = program.run(
        *["pretrain", "gpt", "--load", directory, "--seq-length", EXTENDED, *CASES[name][1]],
        *["--data-path", samples.prefix, "--micro-batch-size", 1, "--train-iters", 1, "--lr", 0],
        expect=2,
    )
    message = done.stderr
    passed = "contradicts" in message and "add --finetune" in message
    report.result(f"{name}, refused without --finetune", passed, "" if passed else message)


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        directory = work / "hf"
        config = llama(dict(rope_type="default", rope_theta=BASE), TRAINED)
        model = hf_models.save(hf_variants.Variant("llama", config), directory)
        samples = corpus.make(work, vocab_size=VOCABULARY, seq_length=EXTENDED, num_samples=2)
        plain = hf_models.log_probabilities(model, samples.rows)
        for name, (rope, _) in CASES.items():
            peer = extended_peer(model, rope)
            moved = np.abs(hf_models.log_probabilities(peer, samples.rows) - plain).max()
            report.result(f"{name}, changes the model", moved > 1e-3, f"by up to {moved:.1e}")
            for layout in LAYOUTS:
                place = work / f"{name}-{layout}".replace(" ", "-")
                with report.guard(f"{name}, {layout}"):
                    check_step(report, name, directory, peer, samples, layout, place)
            with report.guard(f"{name}, checkpoint"):
                check_checkpoint(report, name, directory, peer, samples, work / f"{name}-kept")
            with report.guard(f"{name}, refusal"):
                check_refusal(report, name, directory, samples, work)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
