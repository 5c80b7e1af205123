"""The operators of recurrent layers, loaded into Python, against the plain PyTorch functions of
transformers: forward, final states, and backward against autograd."""
import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers.models.mamba2.modeling_mamba2 import MambaRMSNormGated, mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import (
    Qwen3NextRMSNormGated,
    torch_chunk_gated_delta_rule,
)

from report import Report

LIBRARY = Path(os.environ["MEGATRON"]).resolve().parents[1] / "lib" / "libmegatron_engine.so"
report = Report()


def plain(function):
    """Returns the function behind a decorator that may replace it by a kernel."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def leaves(*tensors):
    return [t.detach().requires_grad_() for t in tensors]


def swap(x):
    """[s, b, …] to [b, s, …], and back."""
    return x.transpose(0, 1).contiguous()


def whole_columns(s, b):
    return [number for column in range(b) for number in (column, 0, s, 0)]


def compare(name, ops, inputs, rule, states, theirs):
    """`theirs` takes the inputs and returns the output and the final states."""
    s, b = inputs[2].shape[:2]
    pieces = whole_columns(s, b)
    plain_inputs = [t.detach() for t in inputs]
    out, final = ops.linear_attention(*plain_inputs, pieces, *rule, states, True)
    expected, expected_final = theirs(*inputs)
    report.close_tensors(
        name,
        {"out": out, "final states": final},
        {"out": expected.detach(), "final states": expected_final.detach()},
    )
    dout = numbers(*out.shape, seed=9)
    found = ops.linear_attention_backward(dout, *plain_inputs, pieces, *rule, states)
    names = ("dq", "dk", "dv", "dg", "dbeta")
    report.close_tensors(
        f"{name}, backward",
        dict(zip(names, found)),
        dict(zip(names, torch.autograd.grad(expected, inputs, dout))),
    )


def check_gated_delta_rule(ops):
    rule = plain(torch_chunk_gated_delta_rule)
    # Theirs sums the decays of a chunk in float32: strong ones need short chunks.
    for s, b, groups, heads, n, p, decay, chunk_size, has_states in (
        (150, 2, 2, 4, 32, 24, 1.0, 64, True),
        (64, 1, 1, 1, 16, 16, 0.01, 64, False),
        (200, 1, 4, 4, 128, 128, 10.0, 8, True),
    ):
        q, k = numbers(s, b, groups, n), numbers(s, b, groups, n, seed=1)
        v, g = numbers(s, b, heads, p, seed=2), -decay * numbers(s, b, heads, seed=3).abs()
        inputs = leaves(q, k, v, g, numbers(s, b, heads, seed=4).sigmoid())
        states = numbers(b, heads, n, p, seed=5) if has_states else None

        def theirs(q, k, v, g, beta):
            q, k = (swap(x).repeat_interleave(heads // groups, 2) for x in (q, k))
            out, final = rule(
                q,
                k,
                swap(v),
                swap(g),
                swap(beta),
                chunk_size=chunk_size,
                initial_state=states,
                output_final_state=True,
                use_qk_l2norm_in_kernel=True,
            )
            return swap(out), final

        label = f"gated delta rule, {s} rows, {heads} heads of {n} x {p}, decay {decay}"
        compare(label, ops, inputs, (True, True, n**-0.5), states, theirs)


def check_mamba2(ops):
    scan = plain(mamba2_chunk_scan)
    for s, b, groups, heads, n, p, has_states in (
        (150, 2, 2, 4, 32, 24, True),
        (300, 1, 1, 3, 64, 16, False),
    ):
        c, k = numbers(s, b, groups, n), numbers(s, b, groups, n, seed=1)
        x, dt = numbers(s, b, heads, p, seed=2), F.softplus(numbers(s, b, heads, seed=3) - 2)
        a = -torch.arange(1.0, heads + 1)
        states = numbers(b, heads, n, p, seed=5) if has_states else None
        c, k, x, dt = leaves(c, k, x, dt)

        expected, expected_final = scan(
            swap(x),
            swap(dt),
            a,
            swap(k),
            swap(c),
            chunk_size=64,
            initial_states=None if states is None else states.transpose(2, 3),
            return_final_states=True,
        )
        expected, expected_final = swap(expected), expected_final.transpose(2, 3)
        name = f"Mamba-2 scan, {s} rows, {heads} heads of {n} x {p}"
        pieces, rule = whole_columns(s, b), (False, False, 1.0)
        inputs = [t.detach() for t in (c, k, x, dt * a, dt)]
        out, final = ops.linear_attention(*inputs, pieces, *rule, states, True)
        report.close_tensors(
            name,
            {"out": out, "final states": final},
            {"out": expected.detach(), "final states": expected_final.detach()},
        )
        dout = numbers(*out.shape, seed=9)
        dq, dk, dv, dg, dbeta = ops.linear_attention_backward(dout, *inputs, pieces, *rule, states)
        names = ("dC", "dB", "dx", "ddt")
        report.close_tensors(
            f"{name}, backward",
            dict(zip(names, (dq, dk, dv, dbeta + dg * a))),
            dict(zip(names, torch.autograd.grad(expected, (c, k, x, dt), dout))),
        )


def check_convolution(ops):
    for taps, silu in ((4, True), (2, False)):
        x, weight, bias = leaves(
            numbers(70, 2, 48), numbers(48, taps, seed=1), numbers(48, seed=2)
        )
        y = F.conv1d(
            x.permute(1, 2, 0), weight.unsqueeze(1), bias, padding=taps - 1, groups=48
        )[..., :70].permute(2, 0, 1)
        y = F.silu(y) if silu else y
        given, pieces = [t.detach() for t in (x, weight, bias)], whole_columns(70, 2)
        out, final = ops.causal_conv(given[0], pieces, *given[1:], None, silu, True)
        report.close_tensors(
            f"causal_conv, {taps} taps",
            {"out": out, "final states": final},
            {"out": y.detach(), "final states": given[0][-(taps - 1) :].permute(1, 2, 0)},
        )
        dout = numbers(*out.shape, seed=3)
        found = ops.causal_conv_backward(dout, given[0], pieces, *given[1:], None, silu)
        names = ("dx", "dweight", "dbias")
        report.close_tensors(
            f"causal_conv, {taps} taps, backward",
            dict(zip(names, found)),
            dict(zip(names, torch.autograd.grad(y, (x, weight, bias), dout))),
        )


def check_gated_norms(ops):
    for peer, norm_before_gate in ((MambaRMSNormGated, False), (Qwen3NextRMSNormGated, True)):
        x, z = leaves(numbers(9, 2, 64), numbers(9, 2, 64, seed=1))
        norm = peer(64, eps=1e-6)
        norm.weight.data.copy_(numbers(64, seed=2))
        y = norm(x, z)
        given, options = [t.detach() for t in (x, z, norm.weight)], (64, norm_before_gate, 1e-6, 0)
        report.close(f"gated_norm as {peer.__name__}", ops.gated_norm(*given, *options), y.detach())
        dy = numbers(*y.shape, seed=3)
        names = ("dx", "dz", "dweight")
        report.close_tensors(
            f"gated_norm as {peer.__name__}, backward",
            dict(zip(names, ops.gated_norm_backward(dy, *given, *options))),
            dict(zip(names, torch.autograd.grad(y, (x, z, norm.weight), dy))),
        )


def main():
    torch.ops.load_library(LIBRARY)
    ops = torch.ops.megatron
    for check in (check_gated_delta_rule, check_mamba2, check_convolution, check_gated_norms):
        with report.guard(check.__name__):
            check(ops)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
