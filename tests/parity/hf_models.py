"""Makes tiny random Hugging Face models, and gives transformers' own answers about them.

There is one of every family and config spelling that the program must read."""
import copy
import tempfile
from pathlib import Path

import hf_variants
import hf_variants_base
import hf_variants_cohere
import hf_variants_deepseek
import hf_variants_ernie
import hf_variants_gemma
import hf_variants_gpt_oss
import hf_variants_llama4
import hf_variants_glm
import hf_variants_ministral
import hf_variants_gpt_neox
import hf_variants_granite
import hf_variants_olmo
import hf_variants_phi
import numpy as np
import torch
from report import TOLERANCE, relative_error
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def is_correction_bias(name):
    """What a router adds to scores: a folder holds it, and no gradient changes it."""
    return name.endswith("e_score_correction_bias")


def all_variants():
    yield from hf_variants_base.variants()
    yield from hf_variants_base.expert_variants()
    yield from hf_variants_deepseek.variants()
    yield from hf_variants_gemma.variants()
    yield from hf_variants_gpt_oss.variants()
    yield from hf_variants_llama4.variants()
    yield from hf_variants_phi.variants()
    yield from hf_variants_olmo.variants()
    yield from hf_variants_glm.variants()
    yield from hf_variants_ernie.variants()
    yield from hf_variants_ministral.variants()
    yield from hf_variants_gpt_neox.variants()
    yield from hf_variants_granite.variants()
    yield from hf_variants_cohere.variants()


def build(config, seed):
    """Makes a model in which no weight or bias is neutral.
    Norms are near one, biases are near zero, and none is at either."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    ).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm_weight = name.endswith("weight") and (
                parameter.dim() == 1 or name.endswith("_norm.weight")
            )
            parameter.copy_(
                1 + 0.3 * noise
                if is_norm_weight
                else 0.2 * noise
                if parameter.dim() == 1
                else 0.12 * noise
            )
        for name, buffer in model.named_buffers():
            if is_correction_bias(name):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
    return model


def save(variant, directory, seed=7):
    """Writes the variant's model as real checkpoints look and returns the model."""
    model = build(variant.config, seed)
    if variant.prepare:
        variant.prepare(model)
    model.save_pretrained(
        directory, max_shard_size=variant.shard_size, save_original_format=not variant.stacked
    )
    for edit in variant.edits:
        edit(directory)
    return model


def parts(values):
    """The arrays in lists, tuples and dictionaries."""
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (list, tuple)):
        return [np.asarray(values)]
    return [part for value in values for part in parts(value)]


def reference(variant, model, compute):
    """What compute(model) gives, and the tolerance of ours. Where transformers' own float32 rounds
    away more than the contract allows, this is computed in float64, and ours may err four times as
    much as that float32."""
    found = compute(model)
    if variant.wide is None:
        return found, TOLERANCE
    with variant.wide(model):
        exact = compute(model)
    errors = [relative_error(a, b) for a, b in zip(parts(found), parts(exact), strict=True)]
    assert np.isfinite(errors).all(), "float32 and float64 choose different tokens"
    return exact, max(TOLERANCE, 4 * max(errors))


def log_probabilities(model, rows):
    """Returns log p(ids[t+1] | ids[..t]) of each row: [rows, length − 1].
    The softmax is in float32 at least."""
    with torch.no_grad():
        logits = model(torch.as_tensor(rows)).logits.float()
    return (
        torch.log_softmax(logits[:, :-1], -1)
        .gather(-1, torch.as_tensor(rows)[:, 1:, None])[..., 0]
        .numpy()
    )


def published_tensors(model, directory):
    """The model's parameters under the names that published checkpoints have."""
    model.save_pretrained(directory)
    if model.config.model_type == "olmo_hybrid":
        hf_variants.tell_norms_apart(directory)
    return load_file(Path(directory) / "model.safetensors")


def logits_of_rows(model, tokens):
    return model(tokens).logits


def loss_and_gradients(model, rows, logits_of=logits_of_rows):
    """The mean token cross entropy over all rows, and its gradient by published name.
    logits_of(model, tokens) says what a token sees."""
    model.zero_grad()
    rows = torch.as_tensor(np.asarray(rows))
    logits = logits_of(model, rows[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    gradients = copy.deepcopy(model)
    with torch.no_grad():
        for gradient, parameter in zip(gradients.parameters(), model.parameters()):
            gradient.copy_(parameter.grad) if parameter.requires_grad else gradient.zero_()
        for name, buffer in gradients.named_buffers():
            if is_correction_bias(name):
                buffer.zero_()
    with tempfile.TemporaryDirectory() as directory:
        tensors = published_tensors(gradients, directory)
    return loss.item(), {name: tensor.numpy() for name, tensor in tensors.items()}


def greedy(model, ids, count):
    """The ids that greedy decoding appends."""
    ids = torch.as_tensor([ids])
    return model.generate(
        ids, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, ids.shape[1] :].tolist()
