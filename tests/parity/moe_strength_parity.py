"""Compares the strength of our auxiliary losses in many layouts with their formulas in float64.

The gradient of the last router's weight is that of the mean over microbatches of

    coefficient · E · Σ_e f_e · P_e    or    coefficient · mean (log Σ_e exp logits_e)²

whatever tp, ep, dp, the number of microbatches and --calculate-per-token-loss are (megatron-core
0.15 depends on the last). The real megatron-core, in float64, gives the router's input."""
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import checkpoint_files
import mcore_models
import mcore_moe
import program
from mcore_moe_models import NUM_EXPERTS, TOPK, variant
from mcore_moe_parity import make_corpus, random_checkpoint
from report import Report

torch.set_num_threads(1)
VOCAB_SIZE, NUM_SAMPLES = 132, 8
ROUTER = f"decoder.layers.{mcore_models.NUM_LAYERS - 1}.mlp.router.weight"
COEFFICIENT = 20.0  # so strong that the difference of two runs keeps its digits
MODEL = variant(
    "experts in the last layer",
    {},
    ["--moe-layer-freq", "[0]*2+[1]*1"],
    dict(moe_layer_freq=[0, 0, 1]),
)
LOSSES = {
    kind: ["--moe-router-load-balancing-type", kind, "--moe-aux-loss-coeff", COEFFICIENT]
    for kind in ("aux_loss", "seq_aux_loss", "global_aux_loss")
}
LOSSES["z_loss"] = ["--moe-z-loss-coeff", COEFFICIENT]
PER_TOKEN = ["--calculate-per-token-loss", "--eod-mask-loss"]
TENSOR = ["--tensor-model-parallel-size", 2]
PIPELINE = ["--pipeline-model-parallel-size", 2, "--decoder-first-pipeline-num-layers", 1]
# Ranks, size of a microbatch, replicas, flags.
LAYOUTS = {
    "one rank": (1, 2, 1, []),
    "microbatches of one": (1, 1, 1, []),
    "one microbatch": (1, 8, 1, []),
    "loss per token": (1, 2, 1, PER_TOKEN),
    "tp 2": (2, 2, 1, TENSOR),
    "tp 2, sequence parallel": (2, 2, 1, [*TENSOR, "--sequence-parallel"]),
    "tp 2, sequence parallel, loss per token": (
        2,
        2,
        1,
        [*TENSOR, "--sequence-parallel", *PER_TOKEN],
    ),
    "two replicas": (2, 2, 2, []),
    "two replicas, loss per token": (2, 2, 2, PER_TOKEN),
    "ep 2": (2, 2, 2, ["--expert-model-parallel-size", 2]),
    "pp 2": (2, 2, 1, PIPELINE),
    "pp 2, loss per token": (2, 2, 1, [*PIPELINE, *PER_TOKEN]),
}


def router_inputs(weights, rows):
    """What the last router receives: float64 [rows, positions, hidden]."""
    model = mcore_moe.build(MODEL)
    mcore_moe.fill(model, weights)
    model = model.module.double()
    inputs = []
    model.decoder.layers[-1].mlp.router.register_forward_pre_hook(
        lambda module, arguments: inputs.append(arguments[0])
    )
    with torch.no_grad():
        mcore_models.token_losses(model, rows)
    return inputs[0].transpose(0, 1).numpy()


def softmax(logits):
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def counts_of(scores):
    chosen = np.argsort(-scores, axis=-1)[:, :TOPK]
    return np.bincount(chosen.ravel(), minlength=NUM_EXPERTS).astype(np.float64)


def balance_gradient(x, weight, shares):
    """d(E · Σ f·P)/d weight for tokens x [T, h] and constant f [E]."""
    scores = softmax(x @ weight.T)
    dscores = NUM_EXPERTS * shares / len(x)
    return (scores * (dscores - (scores @ dscores)[:, None])).T @ x


def z_gradient(x, weight):
    logits = x @ weight.T
    lse = np.log(np.exp(logits).sum(-1, keepdims=True))
    return (softmax(logits) * 2 * lse / len(x)).T @ x


def expected_gradient(kind, inputs, weight, micro_batch_size, replicas):
    """COEFFICIENT times the mean over the microbatches of all replicas."""
    weight, total, seen, tokens = weight.astype(np.float64), 0, np.zeros(NUM_EXPERTS), 0
    microbatches = inputs.reshape(-1, replicas, micro_batch_size, *inputs.shape[1:])
    for parallel in microbatches:  # what the replicas work on at a time
        flat = parallel.reshape(-1, inputs.shape[-1])
        seen, tokens = seen + counts_of(softmax(flat @ weight.T)), tokens + len(flat)
        for microbatch in parallel:
            x = microbatch.reshape(-1, inputs.shape[-1])
            if kind == "z_loss":
                total = total + z_gradient(x, weight)
            elif kind == "global_aux_loss":
                total = total + balance_gradient(x, weight, seen / (TOPK * tokens))
            else:
                samples = [x] if kind == "aux_loss" else list(microbatch)
                for sample in samples:
                    shares = counts_of(softmax(sample @ weight.T)) / (TOPK * len(sample))
                    total = total + balance_gradient(sample, weight, shares) / len(samples)
    return COEFFICIENT * total / (len(microbatches) * replicas)


def router_gradient(samples, work, weights, layout, loss_flags):
    ranks, micro_batch_size, _, flags = LAYOUTS[layout]
    stepped = Path(tempfile.mkdtemp(dir=work)) / "stepped"
    program.sgd_output(
        samples,
        work / "initial",
        stepped,
        [
            *mcore_models.COMMON_FLAGS,
            *MODEL.flags,
            "--finetune",
            *flags,
            *loss_flags,
            "--micro-batch-size",
            micro_batch_size,
        ],
        ranks=ranks,
    )
    return program.gradients(weights, checkpoint_files.read_weights(stepped))[ROUTER]


def check_layout(report, samples, work, weights, inputs, layout):
    _, micro_batch_size, replicas, _ = LAYOUTS[layout]
    without = router_gradient(samples, work, weights, layout, [])
    for kind, flags in LOSSES.items():
        report.close(
            f"strength of {kind}, {layout}",
            router_gradient(samples, work, weights, layout, flags) - without,
            expected_gradient(kind, inputs, weights[ROUTER], micro_batch_size, replicas),
        )


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder, report.guard("strength of auxiliary losses"):
        work = Path(folder)
        samples = make_corpus(work, VOCAB_SIZE, NUM_SAMPLES)
        weights = random_checkpoint(MODEL, samples, work / "initial")
        mcore_models.VOCAB_SIZE = VOCAB_SIZE
        inputs = router_inputs(weights, samples.rows)
        for layout in sys.argv[1:] or LAYOUTS:
            with report.guard(f"strength of auxiliary losses, {layout}"):
                check_layout(report, samples, work, weights, inputs, layout)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
