"""Compares encoders with the real transformers on samples of `dataset show --dataset-type bert`.

Both losses, every gradient and the round trip of BertForPreTraining (norms behind the blocks),
MegatronBertForPreTraining (norms before them), RobertaForMaskedLM and classes without the binary
head, and what `fill-mask` prints; and one step of `--task classify` and `--task rank` with the
classes ForSequenceClassification and ForMultipleChoice.
Usage: bert_parity.py [--seed 1]    environment: MEGATRON
"""
import argparse
import json
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForPreTraining,
    BertForSequenceClassification,
    MegatronBertConfig,
    MegatronBertForPreTraining,
    MegatronBertForSequenceClassification,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
)

import program
from report import Report

torch.set_num_threads(1)
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SEQ_LENGTH, NUM_SAMPLES, NUM_WORDS = 32, 6, 120
NUM_CLASSES = 3
WORDS = [("##" if i % 4 == 1 else "") + f"w{i}" for i in range(NUM_WORDS)]
VOCAB_SIZE = len(SPECIALS) + NUM_WORDS + 2  # Megatron-LM's tokenizer adds [BOS] and [EOS]
SIZES = dict(
    vocab_size=VOCAB_SIZE,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    attn_implementation="eager",
)


@dataclass
class Variant:
    name: str
    kind: Any
    config: Any
    first_position: int = 0

    @property
    def has_binary_head(self):
        return "ForPreTraining" in self.kind.__name__


def variants():
    positions = dict(max_position_embeddings=SEQ_LENGTH)
    yield Variant("bert", BertForPreTraining, BertConfig(**SIZES, **positions))
    yield Variant(
        "bert without the binary head",
        BertForMaskedLM,
        BertConfig(**SIZES, **positions, layer_norm_eps=1e-3),
    )
    yield Variant(
        "megatron-bert", MegatronBertForPreTraining, MegatronBertConfig(**SIZES, **positions)
    )
    yield Variant(
        "roberta",
        RobertaForMaskedLM,
        RobertaConfig(**SIZES, max_position_embeddings=SEQ_LENGTH + 2, type_vocab_size=1),
        first_position=2,
    )


def finetuned_variants():
    sizes = dict(SIZES, max_position_embeddings=SEQ_LENGTH)
    classes = dict(sizes, num_labels=NUM_CLASSES)
    yield Variant("bert of classes", BertForSequenceClassification, BertConfig(**classes))
    yield Variant("bert of choices", BertForMultipleChoice, BertConfig(**sizes))
    yield Variant(
        "megatron-bert of classes",
        MegatronBertForSequenceClassification,
        MegatronBertConfig(**classes),
    )
    classes.update(max_position_embeddings=SEQ_LENGTH + 2, type_vocab_size=1)
    yield Variant(
        "roberta of classes", RobertaForSequenceClassification, RobertaConfig(**classes), 2
    )


def build(kind, config):
    """Makes a model in which no weight or bias is neutral."""
    torch.manual_seed(7)
    model = kind(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            is_norm_weight = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(1 + 0.3 * noise if is_norm_weight else 0.2 * noise)
    return model


def make_corpus(draw, work):
    """Writes a vocabulary and documents of sentences. Returns the flags of both."""
    (work / "vocab.txt").write_text("\n".join(SPECIALS + WORDS) + "\n")
    whole = [word for word in WORDS if not word.startswith("##")]
    sentence = lambda: " ".join(draw.choices(whole, k=draw.randint(2, 12)))
    with (work / "text.jsonl").open("w") as file:
        for _ in range(40):
            file.write(json.dumps({"text": [sentence() for _ in range(draw.randint(2, 6))]}) + "\n")
    tokenizer = ["--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", work / "vocab.txt"]
    program.run(
        *("preprocess-data", "--input", work / "text.jsonl", "--output-prefix", work / "text"),
        *tokenizer,
    )
    return [
        *tokenizer,
        *("--data-path", work / "text_text_document", "--split", "1,0,0"),
        *("--seq-length", SEQ_LENGTH, "--seed", 5),
    ]


def samples_of(corpus, has_binary_head):
    flags = [] if has_binary_head else ["--bert-no-binary-head"]
    lines = program.run(
        *("dataset", "show", "--dataset-type", "bert", *corpus, *flags),
        *("--num-samples", f"{NUM_SAMPLES},0,0", "--count", NUM_SAMPLES),
    ).stdout.splitlines()
    fields = [json.loads(line) for line in lines]
    return {name: torch.tensor([field[name] for field in fields]) for name in fields[0]}


def losses_and_gradients(variant, model, samples):
    """Returns the losses by their names in Megatron's log, and gradients by published name."""
    output = model(
        input_ids=samples["text"],
        attention_mask=samples["padding_mask"],
        token_type_ids=samples["types"],
        position_ids=torch.arange(SEQ_LENGTH)[None] + variant.first_position,
    )
    logits = output.prediction_logits if variant.has_binary_head else output.logits
    labels = samples["labels"].masked_fill(samples["loss_mask"] == 0, -100)
    cross_entropy = torch.nn.functional.cross_entropy
    losses = {"lm loss": cross_entropy(logits.flatten(0, 1), labels.flatten())}
    if variant.has_binary_head:
        losses["sop loss"] = cross_entropy(output.seq_relationship_logits, samples["is_random"])
    model.zero_grad()
    sum(losses.values()).backward()
    gradients = {
        name: parameter.grad.numpy()
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if parameter.grad is not None
    }
    return {name: loss.item() for name, loss in losses.items()}, gradients


def compare_gradients(report, name, found, wanted, zero):
    """A softmax does not change with a bias of all its scores: of the weights whose names end with
    one of `zero`, gradients are roundings."""
    roundings = [weight for weight in wanted if weight.endswith(tuple(zero))]
    largest = max(abs(found[weight]).max() for weight in roundings)
    report.result(f"{name}, gradients of biases without effect", largest < 1e-6, f"{largest:.1e}")
    others = [weight for weight in wanted if weight not in roundings]
    pick = lambda gradients: {weight: gradients[weight] for weight in others}
    report.close_tensors(f"{name}, gradients", pick(found), pick(wanted))


def check_training(report, variant, model, corpus, directory, work):
    samples = samples_of(corpus, variant.has_binary_head)
    losses, expected = losses_and_gradients(variant, model, samples)
    output = program.run(
        *("pretrain", "bert", *corpus, *program.NO_DROPOUT, "--load", directory),
        *("--save", work / "stepped", "--save-interval", 1, "--train-iters", 1),
        *("--micro-batch-size", NUM_SAMPLES, "--global-batch-size", NUM_SAMPLES),
        *("--optimizer", "sgd", "--lr", program.SGD_LEARNING_RATE, "--lr-decay-style", "constant"),
        *("--weight-decay", 0, "--sgd-momentum", 0, "--clip-grad", 0),
        *("--eval-iters", 0, "--log-interval", 1),
    ).stdout
    for name, loss in losses.items():
        report.close(f"{variant.name}, {name}", program.log_values(output, name), [loss])
    report.result(
        f"{variant.name}, losses in the log",
        ("sop loss" in output) == variant.has_binary_head,
    )
    before = program.read_hf(directory)
    after = program.read_hf(program.convert(work / "stepped", work / "stepped-hf", "hf"))
    wanted = {name: expected[name] for name in before}
    compare_gradients(report, variant.name, program.gradients(before, after), wanted, ["key.bias"])


def labelled_samples(draw, has_choices, path):
    """Writes pairs of texts, or questions with choices. Returns ids, types and labels."""
    whole = [i for i in range(NUM_WORDS) if i % 4 != 1]
    text = lambda: draw.choices(whole, k=draw.randint(2, 10))
    words = lambda indices: " ".join(WORDS[i] for i in indices)
    ids, types, labels = [], [], []
    with path.open("w") as file:
        for _ in range(NUM_SAMPLES):
            first, seconds = text(), [text() for _ in range(NUM_CLASSES if has_choices else 1)]
            labels.append(draw.randrange(NUM_CLASSES))
            record = (
                {"question": words(first), "choices": [words(second) for second in seconds]}
                if has_choices
                else {"sentence1": words(first), "sentence2": words(seconds[0])}
            )
            file.write(json.dumps({**record, "label": labels[-1]}) + "\n")
            for second in seconds:
                pair = [[len(SPECIALS) + i for i in part] for part in (first, second)]
                row = [2, *pair[0], 3, *pair[1], 3]
                padding = SEQ_LENGTH - len(row)
                ids.append(row + [0] * padding)
                types.append([0] * (len(first) + 2) + [1] * (len(second) + 1) + [0] * padding)
    shape = (NUM_SAMPLES, -1, SEQ_LENGTH) if has_choices else (NUM_SAMPLES, SEQ_LENGTH)
    return torch.tensor(ids).view(shape), torch.tensor(types).view(shape), torch.tensor(labels)


def check_finetuning(report, variant, model, directory, work, draw):
    """One step on labelled texts: loss, accuracy and gradients."""
    has_choices = "MultipleChoice" in variant.kind.__name__
    work.mkdir(exist_ok=True)
    ids, types, labels = labelled_samples(draw, has_choices, work / "labelled.jsonl")
    output = model(
        input_ids=ids,
        attention_mask=(ids != 0).long(),
        token_type_ids=types if model.config.type_vocab_size > 1 else torch.zeros_like(types),
        position_ids=(torch.arange(SEQ_LENGTH) + variant.first_position).expand(ids.shape),
    )
    loss = torch.nn.functional.cross_entropy(output.logits, labels)
    model.zero_grad()
    loss.backward()
    log = program.run(
        *("pretrain", "bert", "--task", "rank" if has_choices else "classify"),
        *("--train-data", work / "labelled.jsonl", "--seq-length", SEQ_LENGTH),
        *("--tokenizer-type", "BertWordPieceLowerCase"),
        *("--vocab-file", work.parent / "vocab.txt", *program.NO_DROPOUT, "--load", directory),
        *("--save", work / "stepped", "--save-interval", 1, "--train-iters", 1),
        *("--micro-batch-size", NUM_SAMPLES, "--global-batch-size", NUM_SAMPLES),
        *("--optimizer", "sgd", "--lr", program.SGD_LEARNING_RATE, "--lr-decay-style", "constant"),
        *("--weight-decay", 0, "--sgd-momentum", 0, "--clip-grad", 0),
        *("--eval-iters", 0, "--log-interval", 1),
    ).stdout
    report.close(f"{variant.name}, loss", program.log_values(log, "lm loss"), [loss.item()])
    accuracy = (output.logits.argmax(-1) == labels).double().mean().item()
    logged = program.log_values(log, "accuracy") if "accuracy" in log else [0.0]
    report.close(f"{variant.name}, accuracy", logged, [accuracy])
    before = program.read_hf(directory)
    after = program.read_hf(program.convert(work / "stepped", work / "stepped-hf", "hf"))
    found = program.gradients(before, after)
    wanted = {name: dict(model.named_parameters())[name].grad.numpy() for name in before}
    zero = ["key.bias", "classifier.bias"] if has_choices else ["key.bias"]
    compare_gradients(report, variant.name, found, wanted, zero)


@torch.no_grad()
def check_fill_mask(report, variant, model, directory, work):
    """The most likely tokens of both masks of a text, with their probabilities."""
    answer = json.loads(
        program.run(
            *("fill-mask", "--load", directory, "--top-k", 5, "--json"),
            *("--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", work / "vocab.txt"),
            "w0 [MASK] w2 w3 [MASK] w4",
        ).stdout
    )
    ids = torch.tensor([answer["ids"]])
    positions = torch.arange(ids.shape[1])[None] + variant.first_position
    output = model(input_ids=ids, position_ids=positions)
    logits = output.prediction_logits if variant.has_binary_head else output.logits
    best = torch.topk(torch.softmax(logits[0].double(), -1), 5)
    masks = [mask["position"] for mask in answer["masks"]]
    found = [[token["id"] for token in mask["tokens"]] for mask in answer["masks"]]
    report.result(f"{variant.name}, tokens of masks", found == best.indices[masks].tolist())
    report.close(
        f"{variant.name}, probabilities of masks",
        [[token["probability"] for token in mask["tokens"]] for mask in answer["masks"]],
        best.values[masks].numpy(),
    )


def check_round_trip(report, variant, directory, work):
    program.convert(directory, work / "ours", "megatron")
    back = program.convert(work / "ours", work / "back", "hf")
    before, after = program.read_hf(directory), program.read_hf(back)
    differing = [
        name
        for name in sorted(before.keys() | after.keys())
        if name not in before
        or name not in after
        or before[name].tobytes() != after[name].tobytes()
    ]
    report.result(f"{variant.name}, tensors after the round trip", not differing, f"{differing}")
    loaded = variant.kind.from_pretrained(back)
    report.result(
        f"{variant.name}, config after the round trip",
        type(loaded).__name__ == json.loads((back / "config.json").read_text())["architectures"][0],
    )


def check_old_names(report, variant, model, work):
    """The first checkpoints of BERT have TensorFlow's names for norms, and both heads' class."""
    directory = work / "old"
    model.save_pretrained(directory)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(directory / "model.safetensors").items()
    }
    save_file(old, directory / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    config["architectures"] = ["BertForMaskedLM"]
    (directory / "config.json").write_text(json.dumps(config))
    ours = program.convert(directory, work / "old-ours", "megatron")
    after = program.read_hf(program.convert(ours, work / "new", "hf"))
    wanted = {name: tensor.numpy() for name, tensor in model.state_dict().items() if name in after}
    report.close_tensors(f"{variant.name}, old names of norms", after, wanted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    draw = random.Random(parser.parse_args().seed)
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        corpus = make_corpus(draw, Path(folder))
        for number, variant in enumerate(variants()):
            work = Path(folder) / str(number)
            directory = work / "hf"
            model = build(variant.kind, variant.config)
            model.save_pretrained(directory)
            with report.guard(f"{variant.name}, training"):
                check_training(report, variant, model, corpus, directory, work)
            with report.guard(f"{variant.name}, masks"):
                check_fill_mask(report, variant, model, directory, Path(folder))
            with report.guard(f"{variant.name}, round trip"):
                check_round_trip(report, variant, directory, work)
            if variant.name == "bert":
                with report.guard(f"{variant.name}, old names of norms"):
                    check_old_names(report, variant, model, work)
        for number, variant in enumerate(finetuned_variants()):
            work = Path(folder) / f"finetuned{number}"
            directory = work / "hf"
            model = build(variant.kind, variant.config)
            model.save_pretrained(directory)
            with report.guard(f"{variant.name}, finetuning"):
                check_finetuning(report, variant, model, directory, work, draw)
            with report.guard(f"{variant.name}, round trip"):
                check_round_trip(report, variant, directory, work)
    sys.exit(report.finish())


if __name__ == "__main__":
    main()
