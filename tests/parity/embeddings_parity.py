"""Compares embeddings of random tiny models of every family with transformers.

An embedding is the mean of a prompt's rows of `last_hidden_state`, or its last row. Several prompts
share the passes of one engine, and the longest comes in chunks, except in encoders."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertModel,
    MegatronBertConfig,
    MegatronBertModel,
    RobertaConfig,
    RobertaModel,
)

import bert_parity
import hf_models
import program
from generation_parity import with_positions
from report import Report

torch.set_num_threads(1)
SEED = 21
LENGTHS = (1, 7, 40, 130)


def variants_of_families():
    """The first variant of each type of model."""
    seen = set()
    for variant in hf_models.all_variants():
        if variant.config.model_type not in seen:
            seen.add(variant.config.model_type)
            yield variant


def encoders():
    """Names and models without heads, as models of sentences are published."""
    sizes = dict(bert_parity.SIZES, max_position_embeddings=160)
    yield "bert", bert_parity.build(BertModel, BertConfig(**sizes))
    yield "megatron-bert", bert_parity.build(MegatronBertModel, MegatronBertConfig(**sizes))
    yield "roberta", bert_parity.build(RobertaModel, RobertaConfig(**sizes))


@torch.no_grad()
def reference(model, prompts):
    decoder = getattr(model, "model", model.base_model)  # llama4_text has another base_model
    rows = [decoder(torch.tensor([ids])).last_hidden_state[0].double() for ids in prompts]
    return {
        "mean": [one.mean(0).tolist() for one in rows],
        "last": [one[-1].tolist() for one in rows],
    }


def our_embeddings(file):
    done = subprocess.run(
        [program.test_program("inference_tests"), "--gtest_filter=Embeddings.OfHuggingFaceFolders"],
        env={**os.environ, "MEGATRON_EMBEDDINGS": str(file)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return [json.loads(line) for line in Path(f"{file}.out").read_text().splitlines()]


def main():
    report = Report()
    random = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as work, report.guard("embeddings"):
        file, expected = Path(work) / "models.jsonl", {}
        with file.open("w") as lines:

            def add(name, model, folder):
                prompts = [  # RoBERTa does not count tokens of padding, whose id is 1
                    random.integers(2, model.config.vocab_size - 1, count).tolist()
                    for count in LENGTHS
                ]
                expected[name] = reference(model, prompts)
                lines.write(json.dumps({"folder": str(folder), "prompts": prompts}) + "\n")

            for number, variant in enumerate(variants_of_families()):
                folder = Path(work) / str(number)
                folder.mkdir()
                with_positions(variant.config)
                add(variant.name, hf_models.save(variant, folder, SEED), folder)
            for name, model in encoders():
                model.save_pretrained(Path(work) / name)
                add(name, model, Path(work) / name)
        ours = our_embeddings(file)
        for (name, wanted), found in zip(expected.items(), ours, strict=True):
            for pooling, embeddings in wanted.items():
                report.close(f"{name}, {pooling}", found[pooling], embeddings)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
