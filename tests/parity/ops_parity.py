"""The operators of libmegatron_engine.so, loaded into Python, against PyTorch's own in eager mode:
forward on the CPU, backward against autograd, and the shapes that the meta device gives."""
import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from report import Report

LIBRARY = Path(os.environ["MEGATRON"]).resolve().parents[1] / "lib" / "libmegatron_engine.so"
KINDS = {"gelu": 0, "gelu_tanh": 1, "relu": 2, "squared_relu": 3, "silu": 4, "quick_gelu": 5}
FORMULAS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "squared_relu": lambda x: F.relu(x) ** 2,
    "silu": F.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
WINDOW = (-1, -1)
report = Report()


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gradients(y, inputs, dy):
    return torch.autograd.grad(y, inputs, dy)


def check_matmul(ops):
    a, b, bias = numbers(37, 64), numbers(64, 50, seed=1), numbers(50, seed=2)
    report.close("matmul", ops.matmul(a, b, bias, torch.float32), a @ b + bias)
    out = numbers(37, 50, seed=3)
    expected = out + a @ b
    ops.matmul_out(out, a, b, True)
    report.close("matmul_out, accumulating", out, expected)
    half = ops.matmul(a.bfloat16(), b.bfloat16(), None, torch.float32)
    report.close(
        "matmul of bfloat16 into float32", half, a.bfloat16().float() @ b.bfloat16().float()
    )


def check_column_sums(ops):
    x = numbers(300, 33)
    report.close("column_sums", ops.column_sums(x), x.sum(0))


def check_activations(ops):
    for name, kind in KINDS.items():
        for gated in (False, True):
            x, bias = numbers(9, 32).requires_grad_(), numbers(32, seed=1).requires_grad_()
            wide = x + bias
            gate, up = wide.chunk(2, -1)
            y = FORMULAS[name](gate) * up if gated else FORMULAS[name](wide)
            dy = numbers(*y.shape, seed=2)
            label = f"bias_activation, {name}{', gated' if gated else ''}"
            plain, form = (x.detach(), bias.detach()), (kind, gated, None, 0.0)
            report.close(label, ops.bias_activation(*plain, *form, None), y.detach())
            dx, dbias, again, _ = ops.bias_activation_backward(dy, *plain, *form, True, None)
            expected = gradients(y, (x, bias), dy)
            report.close_tensors(
                label + ", backward",
                {"dx": dx, "dbias": dbias, "y": again},
                {"dx": expected[0], "dbias": expected[1], "y": y.detach()},
            )


def check_norms(ops):
    for name in ("LayerNorm", "RMSNorm"):
        x, weight = numbers(5, 2, 24).requires_grad_(), numbers(24, seed=1).requires_grad_()
        bias = numbers(24, seed=2).requires_grad_() if name == "LayerNorm" else None
        branch = numbers(5, 2, 24, seed=3).requires_grad_()
        total = x + branch
        y = (
            F.layer_norm(total, (24,), weight, bias, 1e-5)
            if bias is not None
            else F.rms_norm(total, (24,), weight, 1e-5)
        )
        dy, passed = numbers(*y.shape, seed=4), numbers(*y.shape, seed=5)
        plain = [t.detach() if t is not None else None for t in (x, branch, weight, bias)]
        rows = ops.norm_rows(*plain, 1e-5, 0.0, torch.float32, None, 0.0, 0, 0, None)
        report.close_tensors(
            f"norm_rows, {name} of a sum",
            {"sum": rows[0], "y": rows[1]},
            {"sum": total.detach(), "y": y.detach()},
        )
        found = ops.norm_rows_backward(
            dy,
            passed,
            rows[0],
            rows[2],
            rows[3],
            plain[2],
            plain[3],
            1e-5,
            0.0,
            True,
            None,
            0.0,
            0,
            0,
            None,
        )
        inputs = [t for t in (x, weight, bias) if t is not None]
        expected = torch.autograd.grad([y, total], inputs, [dy, passed])
        names = ["dsum", "dweight", "dbias"][: len(inputs)]
        ours = {"dsum": found[0], "dweight": found[2], "dbias": found[3]}
        report.close_tensors(
            f"norm_rows_backward, {name}", {k: ours[k] for k in names}, dict(zip(names, expected))
        )


def check_rotary(ops):
    for interleaved in (False, True):
        x, angles = numbers(6, 2, 3, 16), numbers(6, 4, seed=1)
        cos, sin = angles.cos().view(6, 1, 1, 4), angles.sin().view(6, 1, 1, 4)
        turned, rest = x[..., :8], x[..., 8:]
        a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
        pair = (a * cos - b * sin, b * cos + a * sin)
        first = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
        rotated = ops.rotary(x, angles.cos(), angles.sin(), interleaved, False)
        name = f"rotary{', interleaved' if interleaved else ''}"
        report.close(name, rotated, torch.cat((first, rest), -1))
        report.close(
            name + ", there and back",
            ops.rotary(rotated, angles.cos(), angles.sin(), interleaved, True),
            x,
        )


def check_split(ops):
    mixed = numbers(5, 2, 3 * (2 + 2) * 8)
    q, k, v = ops.split_query_key_value(mixed, 3, 8, None, None, False, False)
    groups = mixed.view(5, 2, 3, 4, 8)
    report.close_tensors(
        "split_query_key_value",
        {"q": q, "k": k, "v": v},
        {
            "q": groups[..., :2, :].reshape(5, 2, 6, 8),
            "k": groups[..., 2, :],
            "v": groups[..., 3, :],
        },
    )
    report.close(
        "split_query_key_value_backward",
        ops.split_query_key_value_backward(q, k, v, 3, mixed.size(2), None, None, False, True),
        mixed,
    )


def check_attention(ops):
    s, b, n, g, d = 40, 2, 4, 2, 16
    q, k, v = (
        numbers(s, b, heads, d, seed=i).requires_grad_() for i, heads in enumerate((n, g, g))
    )
    first = lambda x: x.permute(1, 2, 0, 3)
    y = F.scaled_dot_product_attention(
        first(q), first(k), first(v), is_causal=True, scale=0.25, enable_gqa=True
    )
    y = y.permute(2, 0, 1, 3).reshape(s, b, n * d)
    options = (True, *WINDOW, 0, 0.25, 0.0, *[None] * 5, 0, 0, s, s, False, 0)
    options += (None, 0.0, 0, 0, None)
    plain = [t.detach() for t in (q, k, v)]
    out, lse, top = ops.attention(*plain, *options)
    report.close("attention", out, y.detach())
    dy = numbers(*y.shape, seed=7)
    found = ops.attention_backward(dy, *plain, out, lse, top, *options)
    report.close_tensors(
        "attention_backward", dict(zip("qkv", found)), dict(zip("qkv", gradients(y, (q, k, v), dy)))
    )


def check_cross_entropy(ops):
    logits, labels = numbers(12, 50).requires_grad_(), torch.arange(12) * 4
    losses = F.cross_entropy(logits, labels, reduction="none")
    lse, label_logit = torch.empty(12), torch.empty(12)
    ops.cross_entropy_statistics(logits.detach(), labels, 0, logits.shape[1], lse, label_logit)
    report.close("cross_entropy_statistics", lse - label_logit, losses.detach())
    mask, gradient = (labels % 8 == 0).float(), torch.empty(12, 50)
    ops.cross_entropy_gradient(
        logits.detach().clone(), labels, 0, 50, lse, mask, torch.tensor(0.5), gradient
    )
    report.close("cross_entropy_gradient", gradient, gradients(losses, logits, mask * 0.5)[0])


def check_embedding(ops):
    table, positions, ids = (
        numbers(20, 8),
        numbers(6, 8, seed=1),
        torch.tensor([[1, 3, 3], [19, 0, 7]]),
    )
    places = torch.tensor([[0, 1, 2], [3, 4, 5]])
    report.close(
        "embedding",
        ops.embedding(table, ids, 0, 20, positions, places, 0, 6, torch.float32),
        F.embedding(ids, table) + F.embedding(places, positions),
    )
    grad, dy = numbers(20, 8, seed=2), numbers(6, 8, seed=3)
    expected = grad.clone().index_add_(0, ids.flatten(), dy)
    ops.embedding_backward_(grad, ids.flatten(), dy, 0)
    report.close("embedding_backward_", grad, expected)


def check_dropout(ops):
    x, residual, ordinals = torch.ones(400, 4, 64), numbers(400, 4, 64), torch.arange(4)
    dropped = ops.dropout_add(x, residual, ordinals, 0.25, 7, 0, None, torch.float32) - residual
    kept = (dropped - 4 / 3).abs() < 1e-5
    report.result(
        "dropout_add: kept numbers are scaled", bool((kept | (dropped.abs() < 1e-5)).all())
    )
    share = kept.float().mean().item()
    report.result("dropout_add: keeps its share", abs(share - 0.75) < 0.005, f"{share:.4f} of 0.75")
    later = ops.dropout_add(x[100:], residual[100:], ordinals, 0.25, 7, 100, None, torch.float32)
    report.result(
        "dropout_add: the mask depends on the position, not on the call",
        torch.equal(later, (dropped + residual)[100:])
        or torch.allclose(later, (dropped + residual)[100:], atol=1e-6),
    )


def check_meta(ops):
    """The fallback of every device gives the CPU's shapes and dtypes without numbers."""
    meta = lambda *shape, dtype=torch.float32: torch.empty(*shape, dtype=dtype, device="meta")
    cases = {
        "matmul": (ops.matmul(meta(3, 4), meta(4, 5), None, torch.float32), (3, 5)),
        "bias_activation": (
            ops.bias_activation(meta(3, 8), meta(8), 4, True, None, 0.0, None),
            (3, 4),
        ),
        "norm_rows": (
            ops.norm_rows(
                meta(3, 2, 8),
                None,
                meta(8),
                meta(8),
                1e-5,
                0.0,
                torch.float32,
                None,
                0.0,
                0,
                0,
                None,
            )[1],
            (3, 2, 8),
        ),
        "rotary": (
            ops.rotary(meta(6, 2, 3, 16), meta(6, 4), meta(6, 4), True, False),
            (6, 2, 3, 16),
        ),
        "column_sums": (ops.column_sums(meta(7, 9)), (9,)),
        "embedding": (
            ops.embedding(
                meta(20, 8), meta(2, 3, dtype=torch.int64), 0, 20, None, None, 0, 0, torch.bfloat16
            ),
            (2, 3, 8),
        ),
    }
    for name, (result, shape) in cases.items():
        report.result(
            f"{name} on the meta device",
            tuple(result.shape) == shape and result.device.type == "meta",
            str(tuple(result.shape)),
        )


def main():
    torch.ops.load_library(LIBRARY)
    ops = torch.ops.megatron
    for check in (
        check_matmul,
        check_column_sums,
        check_activations,
        check_norms,
        check_rotary,
        check_split,
        check_attention,
        check_cross_entropy,
        check_embedding,
        check_dropout,
        check_meta,
    ):
        with report.guard(check.__name__):
            check(ops)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
