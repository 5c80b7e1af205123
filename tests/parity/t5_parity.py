"""Compares `pretrain t5` on Hugging Face directories with the T5 models of transformers.

It compares the loss and every gradient of one step on samples of masked words, on one rank and on
the stages of a pipeline, and the round trip. tests/models/t5_model_test.cpp compares the model with
megatron-core's T5Model. `generate` gives the tokens of transformers' generate(), greedy and by
beams, of prompts of different lengths in the same passes.
"""
import json
import random
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import (
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

import generation_parity
import mcore_cpu
import mcore_data
import program
from masked_parity import SPECIALS
from report import Report

torch.set_num_threads(1)
NUM_WORDS, NUM_SENTINELS, NUM_SAMPLES = 40, 20, 4
VOCABULARY = len(SPECIALS) + NUM_WORDS + 2 + NUM_SENTINELS  # with [BOS] and [EOS]
SIZES = dict(
    vocab_size=VOCABULARY,
    d_model=32,
    d_kv=8,
    d_ff=48,
    num_layers=2,
    num_decoder_layers=3,
    num_heads=4,
    relative_attention_num_buckets=12,
    relative_attention_max_distance=20,
    dropout_rate=0.0,
)
PROMPT_LENGTHS = (1, 9, 60, 150)  # and texts that begin a second block of the KV cache
NUM_NEW = 135
IGNORED_KEYS = {"transformers_version", "_name_or_path", "use_cache", "dtype", "architectures"}


def variants():
    t5, gated = T5ForConditionalGeneration, {"feed_forward_proj": "gated-gelu"}
    yield "t5", t5, T5Config(**SIZES)
    yield "t5 v1.1", t5, T5Config(**SIZES, **gated, tie_word_embeddings=False)
    yield "mt5", MT5ForConditionalGeneration, MT5Config(**SIZES)
    yield "umt5", UMT5ForConditionalGeneration, UMT5Config(**SIZES)


class Samples:
    """A corpus of sentences, its flags, and its first samples."""

    def __init__(self, folder):
        words = [f"w{number}" for number in range(NUM_WORDS)]
        vocabulary = folder / "vocab.txt"
        vocabulary.write_text("".join(token + "\n" for token in SPECIALS + words))
        draw = random.Random(5)
        sentence = lambda: [draw.randrange(5, 5 + NUM_WORDS) for _ in range(draw.randint(3, 12))]
        documents = [[sentence() for _ in range(draw.randint(2, 6))] for _ in range(40)]
        mcore_data.write(f"{folder}/corpus", documents)
        self.flags = [
            "--data-path", f"{folder}/corpus", "--split", "1,0,0", "--seq-length", 48,
            "--decoder-seq-length", 24, "--vocab-extra-ids", NUM_SENTINELS, "--tokenizer-type",
            "BertWordPieceLowerCase", "--vocab-file", vocabulary, "--seed", 77,
        ]  # fmt: skip
        shown = program.run(
            "dataset", "show", "--dataset-type", "t5", "--num-samples", f"{NUM_SAMPLES},0,0",
            "--count", NUM_SAMPLES, *self.flags,
        )  # fmt: skip
        rows = [json.loads(line) for line in shown.stdout.splitlines()]
        self.batch = {
            name: torch.tensor([row[name] for row in rows])
            for name in ("text_enc", "enc_mask", "text_dec", "dec_mask", "labels", "loss_mask")
        }


def loss_and_gradients(model, batch):
    model.zero_grad()
    logits = model(
        input_ids=batch["text_enc"],
        attention_mask=batch["enc_mask"],
        decoder_input_ids=batch["text_dec"],
        decoder_attention_mask=batch["dec_mask"],
        use_cache=False,
    ).logits
    labels = batch["labels"].clamp_min(0)  # −1 where nothing is predicted
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    loss = (losses * batch["loss_mask"]).sum() / batch["loss_mask"].sum()
    loss.backward()
    return loss.item(), {name: p.grad.numpy() for name, p in model.named_parameters()}


def stepped(samples, directory, save, extra, ranks):
    flags = [
        "--load", directory, "--save", save, "--save-interval", 1, "--train-iters", 1,
        "--micro-batch-size", NUM_SAMPLES, "--global-batch-size", NUM_SAMPLES, "--optimizer", "sgd",
        "--lr", program.SGD_LEARNING_RATE, "--lr-decay-style", "constant", "--weight-decay", 0,
        "--sgd-momentum", 0, "--clip-grad", 0, "--eval-iters", 0, "--log-interval", 1,
        *program.NO_DROPOUT, *samples.flags, *extra,
    ]  # fmt: skip
    launcher = ["launch", "--nproc-per-node", ranks, "--"] if ranks > 1 else []
    output = program.run(*launcher, "pretrain", "t5", *flags).stdout
    return program.log_values(output, "lm loss")


def check(report, name, model, samples, folder):
    published = folder / "published"
    model.save_pretrained(published)
    before = program.read_hf(published)
    back = program.convert(
        program.convert(published, folder / "native", "megatron"), folder / "back", "hf"
    )
    after = program.read_hf(back)
    same = set(before) == set(after) and all((before[key] == after[key]).all() for key in before)
    report.result(f"{name}, round trip", same, f"{len(before)} tensors")
    configs = [json.loads((path / "config.json").read_text()) for path in (published, back)]
    wrong = [
        key
        for key in configs[0]
        if key not in IGNORED_KEYS and configs[0][key] != configs[1].get(key)
    ]
    report.result(f"{name}, config.json", not wrong, f"differ: {wrong}" if wrong else "")
    loss, expected = loss_and_gradients(model, samples.batch)
    expected = {key: expected[key] for key in before}
    layouts = {
        "one rank": ([], 1),
        "tp 2": (["--tensor-model-parallel-size", 2, "--sequence-parallel"], 2),
        "pp 2": (["--pipeline-model-parallel-size", 2, "--pipeline-model-parallel-layout",
                  "Ett|tttL"], 2),
    }  # fmt: skip
    for words, (extra, ranks) in layouts.items():
        place = folder / words.replace(" ", "")
        losses = stepped(samples, published, place, extra, ranks)
        report.close(f"{name}, {words}, loss", losses, [loss])
        trained = program.read_hf(program.convert(place, folder / f"{place.name}-hf", "hf"))
        report.close_tensors(
            f"{name}, {words}, gradients", program.gradients(before, trained), expected
        )


@torch.no_grad()
def reference(model, prompt, num_new, **more):
    """The ids that follow the decoder's first, and the logits that they were chosen from."""
    ids = torch.tensor([prompt])
    result = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=num_new,
        do_sample=False,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
        **more,
    )
    return result.sequences[0, 1:].tolist(), result.logits


def rounding(texts, exact):
    """The relative error of the log-probabilities that transformers computes in float32."""
    errors = []
    for (ids, logits), (exact_ids, exact_logits) in zip(texts, exact, strict=True):
        assert ids == exact_ids, "a text ends at a tie"
        found, wanted = (
            torch.log_softmax(torch.cat(rows).double(), -1)[range(len(ids)), ids]
            for rows in (logits, exact_logits)
        )
        errors.append(((found - wanted).abs().max() / wanted.abs().max()).item())
    return max(errors)


def check_generation(report, name, model, folder):
    # Attention then decides the next token more than the last token does.
    model.shared.weight.data.mul_(0.1)
    model.generation_config.decoder_start_token_id = 0
    model.eval().save_pretrained(folder)
    draw = random.Random(7)
    prompts = [[draw.randrange(2, VOCABULARY) for _ in range(n)] for n in PROMPT_LENGTHS]
    rounded = [reference(model, prompt, NUM_NEW) for prompt in prompts]
    model.double()
    wanted = [reference(model, prompt, NUM_NEW) for prompt in prompts]
    model.float()
    tolerance = max(generation_parity.TOLERANCE, 4 * rounding(rounded, wanted))
    layouts = {
        "": {},
        ", tp 2": dict(
            flags=("--tensor-model-parallel-size", 2),
            launcher=("launch", "--nproc-per-node", 2, "--"),
        ),
    }
    for words, more in layouts.items():
        found = generation_parity.Comparison(tolerance)
        texts = generation_parity.our_texts(folder, prompts, VOCABULARY, num_new=NUM_NEW, **more)
        for prompt, ours, (ids, logits) in zip(prompts, texts, wanted, strict=True):
            found.add(prompt, ours, ids, torch.cat(logits), [])
        found.report(report, f"{name}, generation{words}")
    beams = [reference(model, prompt, 8, num_beams=3)[0] for prompt in prompts]
    done = program.run(
        "generate", "--load", folder, "--tokenizer-type", "NullTokenizer", "--vocab-size",
        VOCABULARY, "--prompt-file", folder / "prompts.txt", "--max-new-tokens", 8,
        "--num-beams", 3, "--ignore-eos", "--json",
    )  # fmt: skip
    texts = [json.loads(line)["ids"] for line in done.stdout.splitlines() if line[:1] == "{"]
    report.result(f"{name}, beams", texts == beams, f"{texts}")
    prompt, ids, end = next(
        (prompt, ids, place)
        for prompt, (ids, _) in zip(prompts, wanted, strict=True)
        for place in range(2, generation_parity.NUM_NEW)
        if ids[place] not in ids[:place]
    )
    flags = ("--termination-id", ids[end])
    ended = generation_parity.our_texts(folder, [prompt], VOCABULARY, flags)[0]
    report.result(f"{name}, end token", ended["ids"] == ids[:end], f"{ended['ids']}")


def main():
    mcore_cpu.init()
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        samples = Samples(Path(folder))
        for name, kind, config in variants():
            torch.manual_seed(3)
            model = kind(config)
            place = Path(folder) / name.replace(" ", "")
            place.mkdir()
            with report.guard(name):
                check(report, name, model, samples, place)
            if name == "mt5":  # whose model is that of t5 v1.1
                continue
            config.initializer_factor = 3.0
            config.num_layers = config.num_decoder_layers  # as transformers' cache has them
            torch.manual_seed(3)
            with report.guard(f"{name}, generation"):
                check_generation(report, name, kind(config), place / "generation")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
