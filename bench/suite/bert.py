"""Times the training step of BERT-base (batch 4 × 512, AdamW) against transformers'
BertForPreTraining, on the same weights and samples.

The contenders take turns on full samples, and on samples of which half is padding. `megatron,
padded` computes the padding (--keep-padding); by default ours leaves it out. bf16 is autocast in
PyTorch and --bf16 in ours. The losses of masked tokens must agree step by step."""
import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cases
import commands
import curves
import inputs
import machine
import measure
import tables
import turns

WARM = 2  # steps of a turn that are not counted
NUM_DOCUMENTS = 64
MAIN_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PEERS = ("transformers, eager", "transformers, sdpa")
PADDED = "megatron, padded"
FILLS = ("full", "half")  # of the positions of samples


@dataclass(frozen=True)
class Case:
    """What commands.pretrain() reads of a case, and the sizes of a BERT."""

    layers: int
    hidden: int
    heads: int
    vocab: int
    seq: int
    batch: int = 4
    device: str = "cpu"

    @property
    def model(self):
        return self


BASE = Case(layers=12, hidden=768, heads=12, vocab=30522, seq=512)
TINY = Case(layers=2, hidden=64, heads=4, vocab=128, seq=32)


def sentence_lengths(case, fill):
    """The tokens of two sentences that, with three special ones, fill a share of a sample.
    Sentences that are longer than a sample are cut."""
    tokens = case.seq * 5 // 4 if fill == "full" else case.seq // 2 - len(MAIN_TOKENS[2:])
    return tokens // 2, tokens - tokens // 2


def make_data(work, case, steps):
    """Writes the vocabulary, the weights, and a corpus and the samples of each kind."""
    import numpy as np
    import torch
    from transformers import BertConfig, BertForPreTraining
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    words = case.vocab - len(MAIN_TOKENS) - 2  # Megatron's tokenizer adds [BOS] and [EOS]
    vocabulary = [*MAIN_TOKENS, *(f"w{word}" for word in range(words))]
    (work / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    torch.manual_seed(inputs.SEED)
    config = BertConfig(
        vocab_size=case.vocab,
        hidden_size=case.hidden,
        num_hidden_layers=case.layers,
        num_attention_heads=case.heads,
        intermediate_size=4 * case.hidden,
        max_position_embeddings=case.seq,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertForPreTraining(config).save_pretrained(work / "weights")
    random = np.random.default_rng(inputs.SEED)
    for fill in FILLS:
        text = work / f"{fill}.jsonl"
        with open(text, "w", encoding="utf-8") as file:
            for _ in range(NUM_DOCUMENTS):
                sentences = [
                    " ".join(f"w{word - 1}" for word in np.minimum(random.zipf(1.3, size), words))
                    for size in sentence_lengths(case, fill)
                ]
                file.write(json.dumps({"text": sentences}) + "\n")
        prefix = ["--input", text, "--output-prefix", work / fill]
        inputs.megatron("preprocess-data", *prefix, *tokenizer_flags(work))
        make_samples(work, case, fill, steps)


def tokenizer_flags(work):
    return ["--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", work / "vocab.txt"]


def data_flags(work, fill):
    return {
        "--data-path": work / f"{fill}_text_document",
        "--split": "1,0,0",
        "--short-seq-prob": 0,
        "--data-cache-path": work / "cache",
    }


def make_samples(work, case, fill, steps):
    """Stores the samples of the first steps for the peers, and checks how full they are."""
    import numpy as np

    data = [word for item in data_flags(work, fill).items() for word in item]
    count = ["--start", 0, "--count", steps * case.batch]
    sizes = ["--seq-length", case.seq, "--seed", inputs.SEED]
    shown = inputs.megatron(
        *("dataset", "show", "--dataset-type", "bert", *data, *count, *sizes),
        *("--num-samples", f"{steps * case.batch},0,0", *tokenizer_flags(work)),
    )
    rows = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    fields = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "index"}
    share = fields["padding_mask"].mean()  # the padding token has the id 0
    if len(rows) != steps * case.batch or share != (1.0 if fill == "full" else 0.5):
        raise SystemExit(f"{len(rows)} {fill} samples of which {share:.0%} are tokens")
    np.savez(work / f"{fill}.npz", **fields)


def our_turn(case, dtype, work, fill, steps, keeps_padding):
    flags = {"--load": work / "weights", **data_flags(work, fill)}
    flags |= {"--tokenizer-type": "BertWordPieceLowerCase", "--vocab-file": work / "vocab.txt"}
    command = commands.pretrain(
        case, dtype, steps, flags | ({"--keep-padding": True} if keeps_padding else {})
    )
    command[command.index("gpt")] = "bert"
    return commands.Turn(command)


def peer_steps(work, fill, dtype, contender, batch, steps):
    """Runs a turn of transformers: prints a line per step, as torch_turn.py does."""
    import numpy as np
    import torch
    import torch.nn.functional as F
    from transformers import BertForPreTraining

    from torch_turn import make_optimizer

    samples = {name: torch.from_numpy(x) for name, x in np.load(work / f"{fill}.npz").items()}
    labels = samples["labels"].masked_fill(samples["loss_mask"] == 0, -100)
    model = BertForPreTraining.from_pretrained(
        work / "weights", dtype=torch.float32, attn_implementation=contender.split(", ")[1]
    ).train()
    optimizer = make_optimizer(model)
    for step in range(steps):
        rows = slice(step * batch, (step + 1) * batch)
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16) if dtype == "bf16" else contextlib.nullcontext():
            out = model(
                input_ids=samples["text"][rows],
                token_type_ids=samples["types"][rows],
                attention_mask=samples["padding_mask"][rows],
            )
            masked = F.cross_entropy(out.prediction_logits.flatten(0, 1), labels[rows].flatten())
            order = F.cross_entropy(out.seq_relationship_logits, samples["is_random"][rows])
        (masked + order).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cases.CLIP)
        optimizer.step()
        row = {"ms": (time.perf_counter() - start) * 1e3, "loss": masked.item()}
        print(json.dumps(row), flush=True)


def peer_turn(case, dtype, work, fill, steps, contender):
    words = [sys.executable, __file__, "--turn", work, fill, dtype, contender, case.batch, steps]
    return commands.Turn([str(word) for word in words])


def runs_of(case, dtype, work, fill, steps):
    """The contenders of one kind of samples, {name: Run}."""
    made = {"megatron": our_turn(case, dtype, work, fill, steps, False)}
    made |= {name: peer_turn(case, dtype, work, fill, steps, name) for name in PEERS}
    if fill == "half":
        made[PADDED] = our_turn(case, dtype, work, fill, steps, True)
    return {
        name: measure.Run(
            name, partial(turns.watch, turn, steps, WARM, name, work), f"{fill} {dtype}"
        )
        for name, turn in made.items()
    }


def print_table(dtype, rows):
    print("\n" + tables.contender_head(f"{dtype} samples"))
    for fill, found in rows.items():
        print(*tables.contender_lines(fill, found), sep="\n")
    full, half = (rows[fill]["megatron"]["median_ms"] for fill in FILLS)
    print(f"\nHalf full of padding, a batch takes ours {half / full:.0%} of a full one's time.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=cases.DTYPES, default="bf16")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--steps", type=int, default=5, help="counted steps of a turn")
    parser.add_argument("--output", help="a file for all results, as JSON")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: tests this program")
    parser.add_argument("--turn", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        work, fill, dtype, contender, batch, steps = options.turn
        return peer_steps(Path(work), fill, dtype, contender, int(batch), int(steps))
    os.environ.setdefault("OMP_NUM_THREADS", "1" if options.smoke else str(machine.cores()))
    # The losses of fp32 are compared more strictly.
    case, dtype = (TINY, "fp32") if options.smoke else (BASE, options.dtype)
    rounds, counted = (1, 2) if options.smoke else (options.rounds, options.steps)
    rows, complaints = {}, []
    with tempfile.TemporaryDirectory() as folder:
        work, steps = Path(folder), counted + WARM
        make_data(work, case, steps)
        runs = {fill: runs_of(case, dtype, work, fill, steps) for fill in FILLS}
        progress = measure.Progress(
            [run for each in runs.values() for run in each.values()] * rounds
        )
        for fill, each in runs.items():
            rows[fill] = measure.measure(each, rounds, progress)
            complaints += curves.check(rows[fill], dtype)[1]
    print_table(dtype, rows)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            result = {"machine": machine.describe(), "dtype": dtype, "samples": rows}
            json.dump(result, file, indent=1)
    return "\n".join(complaints) or None


if __name__ == "__main__":
    sys.exit(main())
