"""Compares `pretrain hybrid` with megatron-core's MambaModel: Mamba-2, attention and MLPs.

Its checkpoints, in both formats, are read with its weights bit by bit; log-probabilities, loss and
every gradient follow from them. It reads our torch_dist folder back."""
import multiprocessing
import sys
import tempfile
from pathlib import Path

import mcore_mamba
import numpy as np
import torch
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.strategies import filesystem_async

import checkpoint_files
import corpus
import mcore_saved_args
import program
from report import Report

torch.set_num_threads(1)
ITERATION = 3


def saved_state():
    """What Megatron-LM saves beside tensors. megatron-core 0.15 has an older name for patterns."""
    flags = mcore_mamba.FLAGS[2:]  # without the pattern
    args = mcore_saved_args.namespace(
        flags,
        num_layers=len(mcore_mamba.PATTERN),
        hybrid_override_pattern=mcore_mamba.PATTERN,
        padded_vocab_size=mcore_mamba.VOCAB_SIZE,
        seq_length=mcore_mamba.SEQ_LENGTH,
        consumed_train_samples=0,
    )
    return {"args": args, "checkpoint_version": 3.0, "iteration": ITERATION}


def save(model, root, kind):
    folder = root / f"iter_{ITERATION:07d}"
    folder.mkdir(parents=True)
    state = saved_state()
    if kind == "torch_dist":
        state["model"] = model.sharded_state_dict()
        dist_checkpointing.save(state, str(folder))
    else:
        state["model"] = model.state_dict_for_save_checkpoint()
        (folder / "mp_rank_00").mkdir()
        torch.save(state, folder / "mp_rank_00/model_optim_rng.pt")
    (root / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))


def check_weights(report, name, found, expected):
    differing = sorted(
        key
        for key in found.keys() | expected.keys()
        if key not in found or key not in expected or not np.array_equal(found[key], expected[key])
    )
    report.result(name, not differing, ", ".join(differing) or f"{len(found)} tensors")


def check_saved(report, kind, work):
    model = mcore_mamba.build()
    save(model, work / kind, kind)
    before = mcore_mamba.weights(model)
    program.convert(work / kind, work / "ours", "megatron")
    check_weights(
        report, f"{kind}, weights", checkpoint_files.read_weights(work / "ours"), before
    )
    size, length = mcore_mamba.VOCAB_SIZE, mcore_mamba.SEQ_LENGTH
    rows = np.random.default_rng(3).integers(0, size, (3, length + 1))
    with torch.no_grad():
        expected = -mcore_mamba.token_losses(model, rows).numpy()
    answers = program.score(work / kind, rows)
    report.close(
        f"{kind}, log-probabilities", [answer["logprobs"] for answer in answers], expected
    )
    samples = corpus.make(work, vocab_size=size, seq_length=length)
    loss, gradients = mcore_mamba.loss_and_gradients(model, samples.rows)
    measured = program.sgd_step(
        samples, work / kind, work / "stepped", ["--finetune"], model="hybrid"
    )
    report.close(f"{kind}, loss", measured, loss)
    after = checkpoint_files.read_weights(work / "stepped")
    report.close_tensors(f"{kind}, gradients", program.gradients(before, after), gradients)


def check_written(report, work):
    """megatron-core reads what `convert` writes of our checkpoint."""
    model, other = mcore_mamba.build(), mcore_mamba.build(seed=8)
    save(model, work / "theirs", "torch_dist")
    program.convert(work / "theirs", work / "ours", "megatron")
    root = program.convert(work / "ours", work / "written", "torch_dist")
    tracker = (root / "latest_checkpointed_iteration.txt").read_text().strip()
    folder = root / (tracker if tracker == "release" else f"iter_{int(tracker):07d}")
    loaded, _, lacking = dist_checkpointing.load(
        {"model": other.sharded_state_dict()},
        str(folder),
        strict=dist_checkpointing.validation.StrictHandling.RETURN_ALL,
    )
    lacking = [name for name in lacking if "_extra_state" not in name]  # its modules have none
    report.result("torch_dist that we write, names", not lacking, ", ".join(lacking))
    other.load_state_dict(loaded["model"], strict=False)
    check_weights(
        report,
        "torch_dist that we write, weights",
        mcore_mamba.weights(other),
        mcore_mamba.weights(model),
    )


def main():
    # megatron-core would spawn it, and the new interpreter would run this file.
    filesystem_async._results_queue = multiprocessing.get_context("fork").Manager().Queue()
    report = Report()
    for kind in ("torch_dist", "torch"):
        with tempfile.TemporaryDirectory() as work, report.guard(kind):
            check_saved(report, kind, Path(work))
    with tempfile.TemporaryDirectory() as work, report.guard("torch_dist that we write"):
        check_written(report, Path(work))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
