"""Compares greedy generation of random tiny models of every family with transformers.generate.

Each model continues several prompts in the passes of one engine: a token alone, prompts around the
border of a block of the KV cache, and two that begin alike. The tokens must be the same, and their
log-probabilities and the prompts' must agree to 1e-5. Where transformers' own two best logits are
closer than that, the rest of the text is not compared; this must be rare."""
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import hf_models
import program
from report import TOLERANCE, Report, relative_error

torch.set_num_threads(1)
BLOCK = 128  # positions of a block of the KV cache (src/megatron/ops/cache_memory.h)
NUM_POSITIONS = 256
NUM_NEW = 12
SEEDS = range(11, 11 + int(os.environ.get("GENERATION_SEEDS", "1")))  # of models and prompts
MOST_TIES = 0.01  # of the texts


def prompts_of(random, vocab_size, seed):
    """Prompts of different lengths. The last id of the vocabulary would end a text."""

    def ids(count):
        return random.integers(0, vocab_size - 1, count).tolist()

    if seed != SEEDS[0]:
        return [ids(int(count)) for count in random.integers(2, 60, 2)] + [ids(3)]
    long = ids(BLOCK + 9)
    return [ids(1), long, long[: BLOCK + 1] + ids(2), ids(BLOCK - 5)]


def with_positions(config):
    """Gives a configuration room for the prompts. Scaled rotary positions do not depend on it."""
    for name in ("max_position_embeddings", "n_positions"):
        if hasattr(config, name):
            setattr(config, name, NUM_POSITIONS)
            return
    if config.model_type != "mamba2":  # which has no bound
        raise ValueError(f"{type(config).__name__} has no number of positions")


def our_texts(directory, prompts, vocab_size, flags=(), num_new=NUM_NEW, launcher=()):
    (directory / "prompts.txt").write_text(
        "".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts)
    )
    done = program.run(
        *launcher,
        "generate",
        *("--load", directory, "--tokenizer-type", "NullTokenizer", "--vocab-size", vocab_size),
        *("--prompt-file", directory / "prompts.txt", "--max-new-tokens", num_new),
        *("--temperature", 0, "--ignore-eos", "--return-log-probs", "--json", *flags),
    )
    lines = done.stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


@torch.no_grad()
def reference(model, prompt):
    """The ids that transformers appends, and the logits that it chose them from."""
    ids = torch.tensor([prompt])
    result = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NUM_NEW,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return result.sequences[0, len(prompt) :].tolist(), torch.cat(result.logits).float()


class Comparison:
    """What the texts of a model differ in."""

    def __init__(self, tolerance=TOLERANCE):
        self.tolerance = tolerance
        self.num_texts, self.num_ties = 0, 0
        self.error, self.wrong = 0.0, []

    def add(self, prompt, ours, expected, logits, prompt_logprobs):
        self.num_texts += 1
        logprobs = torch.log_softmax(logits, -1)
        count = len(expected)
        for place, (found, wanted) in enumerate(zip(ours["ids"], expected)):
            if found == wanted:
                continue
            if (logprobs[place].max() - logprobs[place, found]).item() <= self.tolerance:
                self.num_ties += 1  # what follows continues another text
                count = place
                break
            self.wrong.append(f"prompt of {len(prompt)}: {wanted} at {place}, not {found}")
            return
        if len(ours["ids"]) != len(expected):
            self.wrong.append(f"prompt of {len(prompt)}: {len(ours['ids'])} tokens")
            return
        chosen = logprobs[range(count), expected[:count]].numpy()
        self.error = max(
            self.error,
            relative_error(ours["logprobs"][:count], chosen),
            relative_error(ours.get("prompt_logprobs", [])[1:], prompt_logprobs),
        )

    def report(self, report, name):
        detail = f"max relative error {self.error:.2e} of {self.num_texts} texts"
        passed = not self.wrong and self.error <= self.tolerance
        report.result(name, passed, "; ".join([detail, *self.wrong]))


def flags_of(variant):
    """Ways to run the model beside the default one."""
    yield "", ()
    if variant.config.model_type.startswith("deepseek"):
        yield ", cached latents", ("--cache-mla-latents",)


def compare(report, variant, seed, work, pool):
    """Returns how many texts there were, and how many ended at a tie."""
    with_positions(variant.config)
    model = hf_models.save(variant, work, seed)
    vocab_size = model.config.vocab_size
    prompts = prompts_of(np.random.default_rng(seed), vocab_size, seed)
    runs = {
        name: pool.submit(our_texts, work, prompts, vocab_size, flags)
        for name, flags in flags_of(variant)
    }
    references, tolerance = hf_models.reference(
        variant,
        model,
        lambda model: [(*reference(model, ids), prompt_logprobs(model, ids)) for ids in prompts],
    )
    num_texts = num_ties = 0
    for name, run in runs.items():
        found = Comparison(tolerance)
        for prompt, ours, expected in zip(prompts, run.result(), references, strict=True):
            found.add(prompt, ours, *expected)
        found.report(report, f"{variant.name}{name}, seed {seed}")
        num_texts, num_ties = num_texts + found.num_texts, num_ties + found.num_ties
    return num_texts, num_ties


def prompt_logprobs(model, prompt):
    return hf_models.log_probabilities(model, [prompt])[0] if len(prompt) > 1 else []


def main():
    report, totals = Report(), np.zeros(2, dtype=int)
    wanted = sys.argv[1:]
    with ThreadPoolExecutor(1) as pool:
        for seed in SEEDS:
            for variant in hf_models.all_variants():
                if wanted and variant.name not in wanted:
                    continue
                name = f"{variant.name}, seed {seed}"
                with tempfile.TemporaryDirectory() as work, report.guard(name):
                    totals += compare(report, variant, seed, Path(work), pool)
    num_texts, num_ties = totals
    report.result(
        "texts that end at a tie of logits",
        num_ties <= MOST_TIES * num_texts,
        f"{num_ties} of {num_texts}",
    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
