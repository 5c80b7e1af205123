"""Finds the order in which megatron-core's own pipeline functions run forwards and backwards.

The functions run, with ranks, messages and layers left out. After mcore_cpu.init():

    steps(ranks, chunks, microbatches, rank, group=None, forward_only=False, combined=False)

A forward hands out a tag; the function that runs keeps it as it would the output, and gives it to
the backward.
"""
from types import SimpleNamespace
from unittest import mock

import torch
from megatron.core.enums import ModelType
from megatron.core.pipeline_parallel import schedules


class Group:
    def __init__(self, size, rank):
        self.size, self.rank = lambda: size, lambda: rank


class NoMessages:
    """Every send and receive ends at once and brings nothing."""

    def __init__(self, config, group):
        self.config, self.pp_group = config, group

    def __getattr__(self, name):
        return (
            lambda *arguments, **options: (None, None)
            if name == "send_forward_backward_recv_forward_backward"
            else None
        )


def configuration(chunks, group, combined):
    fields = dict.fromkeys(
        (
            "timers",
            "finalize_model_grads_func",
            "no_sync_func",
            "grad_sync_func",
            "param_sync_func",
            "num_microbatches_with_partial_activation_checkpoints",
        )
    )
    flags = dict.fromkeys(
        (
            "overlap_p2p_comm",
            "batch_p2p_comm",
            "sequence_parallel",
            "deallocate_pipeline_outputs",
            "barrier_with_L1_time",
            "overlap_p2p_comm_warmup_flush",
            "calculate_per_token_loss",
        ),
        False,
    )
    return SimpleNamespace(
        **fields,
        **flags,
        overlap_moe_expert_parallel_comm=combined,
        virtual_pipeline_model_parallel_size=chunks,
        microbatch_group_size_per_vp_stage=group,
        hidden_size=1
    )


class Recorder:
    def __init__(self):
        self.steps = []

    def forward(self, *_, current_microbatch, vp_stage=0, **__):
        step = ("F", current_microbatch, vp_stage or 0)
        self.steps.append(step)
        return [step], 0

    def backward(self, _, output, *__):
        self.steps.append(("BW", *output[0][1:]))
        return [None]

    def combined(self, *helpers, f_virtual_microbatch_id=None, b_virtual_microbatch_id=None, **_):
        """Stands in for combined_1f1b_schedule_for_interleaved_pipelining.
        Its arguments are the helpers of the function that calls it."""
        (
            before_forward,
            after_forward,
            before_backward,
            after_backward,
            microbatch_of,
            chunk_of,
        ) = helpers[6:12]
        forward, backward = f_virtual_microbatch_id, b_virtual_microbatch_id
        if forward is not None:
            chunk, microbatch = chunk_of(forward, forward=True), microbatch_of(
                forward, forward=True
            )
            before_forward(forward, chunk, microbatch)
            self.forward(current_microbatch=microbatch, vp_stage=chunk)
            after_forward(chunk, [self.steps[-1]], 0)
            if backward is not None:
                self.steps[-1] = ("F+", *self.steps[-1][1:])
        if backward is not None:
            self.backward(*before_backward(backward, chunk_of(backward, forward=False)))
            after_backward(backward)
        return None, None


def steps(ranks, chunks, microbatches, rank, group=None, forward_only=False, combined=False):
    """Returns [(kind, microbatch, chunk)] of one rank.
    The kinds are F, BW, and F+ for a forward that runs interleaved with the backward behind it."""
    config = configuration(chunks if chunks > 1 else None, group or ranks, combined)
    model = [torch.nn.Module() for _ in range(chunks)]
    for chunk in model:
        chunk.config, chunk.model_type = config, ModelType.encoder_or_decoder
    one, recorder = Group(1, 0), Recorder()
    run = (
        schedules.forward_backward_pipelining_with_interleaving
        if chunks > 1
        else schedules.forward_backward_pipelining_without_interleaving
    )
    groups = SimpleNamespace(
        tp=one, cp=one, embd=None, pos_embd=None, pp=Group(ranks, rank), dp_cp=one
    )
    zeros = torch.zeros
    with mock.patch.multiple(
        schedules,
        forward_step=recorder.forward,
        backward_step=recorder.backward,
        combined_1f1b_schedule_for_interleaved_pipelining=recorder.combined,
    ), mock.patch.object(
        torch, "zeros", lambda *sizes, device=None, **options: zeros(*sizes, **options)
    ):
        run(
            forward_step_func=None,
            data_iterator=[None] * chunks,
            model=model,
            num_microbatches=microbatches,
            seq_length=1,
            micro_batch_size=1,
            forward_only=forward_only,
            p2p_communicator=NoMessages(config, groups.pp),
            pg_collection=groups,
        )
    return recorder.steps
