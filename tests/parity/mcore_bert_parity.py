"""Compares `pretrain bert` with the real megatron-core's BertModel on a CPU.

Both losses and every gradient, on samples of `dataset show --dataset-type bert`.
Usage: mcore_bert_parity.py    environment: MEGATRON
"""
import random
import sys
import tempfile
from pathlib import Path

import bert_parity
import checkpoint_files
import mcore_models
import program
import torch
import torch.nn.functional as F
from megatron.core.models.bert.bert_layer_specs import bert_layer_local_spec
from megatron.core.models.bert.bert_model import BertModel
from megatron.core.transformer.transformer_config import TransformerConfig
from report import Report

torch.set_num_threads(1)
SIZES = dict(num_layers=2, hidden_size=32, num_attention_heads=4, ffn_hidden_size=48)


def variants():
    """Names, flags, and arguments of the model."""
    yield "both heads", [], {}
    yield "one head", ["--bert-no-binary-head"], dict(add_binary_head=False, num_tokentypes=0)
    # megatron-core accepts --apply-residual-connection-post-layernorm, and ignores it.
    untied = dict(share_embeddings_and_output_weights=False)
    yield "untied", ["--untie-embeddings-and-output-weights"], untied


def train(corpus, flags, more, directory):
    return program.run(
        *("pretrain", "bert", *corpus, *program.NO_DROPOUT, *flags),
        *("--num-layers", 2, "--hidden-size", 32, "--num-attention-heads", 4),
        *("--ffn-hidden-size", 48, "--save", directory, "--save-interval", 1),
        *("--weight-decay", 0, "--clip-grad", 0, "--lr-decay-style", "constant"),
        *("--eval-iters", 0, "--log-interval", 1, *more),
    ).stdout


def load(weights, model_arguments):
    config = TransformerConfig(**{**mcore_models.COMMON_CONFIG, **SIZES})
    arguments = dict(
        num_tokentypes=2, share_embeddings_and_output_weights=True, add_binary_head=True
    )
    model = BertModel(
        config=config,
        transformer_layer_spec=bert_layer_local_spec,
        vocab_size=bert_parity.VOCAB_SIZE,
        max_sequence_length=bert_parity.SEQ_LENGTH,
        **{**arguments, **model_arguments},
    )
    parameters = {mcore_models.te_name(name): p for name, p in model.named_parameters()}
    assert parameters.keys() == weights.keys(), parameters.keys() ^ weights.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(weights[name]))
    return model, parameters


def check(report, name, flags, model_arguments, corpus, work):
    wild = ["--train-iters", 4, "--micro-batch-size", 2, "--global-batch-size", 2]
    train(corpus, flags, [*wild, "--lr", 0.05, "--init-method-std", 0.1], work / "start")
    weights = checkpoint_files.read_model(work / "start")
    model, parameters = load(weights, model_arguments)
    has_binary_head = "--bert-no-binary-head" not in flags
    samples = bert_parity.samples_of(corpus, has_binary_head)
    types = samples["types"] if has_binary_head else None  # as Megatron-LM's pretrain_bert.py
    logits, classes = model(samples["text"], samples["padding_mask"], types)
    mask = samples["loss_mask"]
    labels = samples["labels"].clamp_min(0)
    token_losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    losses = {"lm loss": (token_losses * mask).sum() / mask.sum()}
    if has_binary_head:
        losses["sop loss"] = F.cross_entropy(classes, samples["is_random"])
    sum(losses.values()).backward()
    count = bert_parity.NUM_SAMPLES
    step = ["--train-iters", 1, "--micro-batch-size", count, "--global-batch-size", count]
    step += ["--load", work / "start", "--finetune", "--optimizer", "sgd", "--sgd-momentum", 0]
    output = train(corpus, flags, [*step, "--lr", program.SGD_LEARNING_RATE], work / "stepped")
    for loss, value in losses.items():
        report.close(f"{name}, {loss}", program.log_values(output, loss), [value.item()])
    report.close_tensors(
        f"{name}, gradients",
        program.gradients(weights, checkpoint_files.read_model(work / "stepped")),
        {key: parameter.grad.numpy() for key, parameter in parameters.items()},
    )


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        corpus = bert_parity.make_corpus(random.Random(2), Path(folder))
        for number, (name, *rest) in enumerate(variants()):
            with report.guard(name):
                check(report, name, *rest, corpus, Path(folder) / str(number))
    sys.exit(report.finish())


if __name__ == "__main__":
    main()
