"""Finds which bits depend on the number of threads.

It tries LibTorch's operations one by one, and whole runs of the program.

    tests/parity/run.sh determinism
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F

THREADS = (1, 2, 3)
PROGRAM = Path(os.environ.get("MEGATRON", Path(__file__).parents[2] / "build/bin/megatron"))
FAMILIES = {
    "gpt3": ["--attention-dropout", "0.1", "--hidden-dropout", "0.1"],
    "llama": "--normalization RMSNorm --swiglu --position-embedding-type rope "
    "--disable-bias-linear --untie-embeddings-and-output-weights "
    "--attention-dropout 0 --hidden-dropout 0".split(),
    "gelu without dropout": ["--attention-dropout", "0", "--hidden-dropout", "0"],
}


def operations(dtype):
    generator = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=generator).to(dtype)
    out = {}
    for m, k, n in [(256, 256, 768), (256, 1024, 256), (1024, 768, 768), (512, 2048, 512)]:
        out[f"gemm {m}x{k}x{n}"] = draw(m, k) @ draw(n, k).t()
        out[f"weight gradient {m}x{k}x{n}"] = draw(m, n).addmm_(draw(k, m).t(), draw(k, n))
    x, w, b = (
        draw(256, 256).requires_grad_(),
        draw(256).requires_grad_(),
        draw(256).requires_grad_(),
    )
    y = F.layer_norm(x, (256,), w, b)
    y.backward(draw(256, 256))
    out |= {
        "layer norm": y,
        "layer norm dx": x.grad,
        "layer norm dw": w.grad,
        "layer norm db": b.grad,
    }
    x = draw(255, 2047).requires_grad_()
    y = F.silu(x.narrow(1, 0, 1023)) * x.narrow(1, 1023, 1023)
    y.backward(draw(255, 1023))
    out |= {"gated silu": y, "gated silu dx": x.grad}
    q, k, v = (draw(2, 4, 128, 64).requires_grad_() for _ in range(3))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y.backward(draw(2, 4, 128, 64))
    out |= {"attention": y, "attention dq": q.grad, "attention dk": k.grad, "attention dv": v.grad}
    rows = torch.randint(0, 50, (512,), generator=generator)
    out["embedding gradient"] = torch.zeros(1000, 256, dtype=dtype).index_add_(
        0, rows, draw(512, 256)
    )
    return out


def compare_operations():
    for dtype in (torch.float32, torch.bfloat16):
        results = {}
        for threads in THREADS:
            torch.set_num_threads(threads)
            results[threads] = operations(dtype)
        varying = [
            name
            for name in results[1]
            if any(not torch.equal(results[1][name], results[t][name]) for t in THREADS)
        ]
        print(
            f"{dtype}: of {len(results[1])} operations of LibTorch, "
            f"these depend on the number of threads: {', '.join(varying) or 'none'}"
        )


def checksum(threads, flags, folder):
    command = [
        PROGRAM,
        "pretrain",
        "gpt",
        "--num-layers",
        "2",
        "--hidden-size",
        "128",
        "--num-attention-heads",
        "2",
        "--seq-length",
        "96",
    ]
    command += [
        "--vocab-size",
        "999",
        "--tokenizer-type",
        "NullTokenizer",
        "--mock-data",
        "--micro-batch-size",
        "2",
        "--global-batch-size",
        "4",
    ]
    command += [
        "--train-iters",
        "3",
        "--lr",
        "1e-3",
        "--eval-iters",
        "0",
        "--num-workers",
        "1",
        "--no-save-optim",
        "--save",
        folder,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    subprocess.run(
        [*map(str, command), *flags], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    digest = hashlib.sha256()
    for file in sorted(Path(folder).glob("iter_0000003/weights*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def compare_runs():
    failures = 0
    for name, family in FAMILIES.items():
        for precision in ([], ["--bf16"]):
            with tempfile.TemporaryDirectory() as folder:
                fixed = {
                    checksum(t, [*family, *precision, "--deterministic-mode"], f"{folder}/{t}")
                    for t in THREADS
                }
                again = {checksum(2, [*family, *precision], f"{folder}/again{i}") for i in range(2)}
            same = len(fixed) == 1 and len(again) == 1
            failures += not same
            print(
                f"{'ok  ' if same else 'FAIL'} {name} {''.join(precision) or 'fp32'}: "
                f"deterministic mode, {THREADS} threads: {len(fixed)} different; "
                f"twice with 2 threads: {len(again)}"
            )
    return failures


if __name__ == "__main__":
    compare_operations()
    sys.exit(1 if compare_runs() else 0)
