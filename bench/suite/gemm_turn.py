"""Runs one turn of the GEMM-only bound, in a process of its own.

It computes exactly the GEMMs of the case (every weight matrix, forward, input gradient and weight
gradient) through torch.mm and nothing else; every layer has its own weights. It prints lines as
torch_turn.py does, without a loss.

  gemm_turn.py CASE DTYPE STEPS"""
import json
import sys
import time

import torch

import cases


def gemms(case, dtype):
    """Returns the GEMMs as functions without arguments."""

    def random(*shape):
        return torch.randn(*shape, device=case.device).to(dtype)

    forward, backward = [], []
    for rows, out, inner, count in case.gemms():
        x, gradient = random(rows, inner), random(rows, out)
        y, dx = torch.empty_like(gradient), torch.empty_like(x)
        for _ in range(count):
            w = random(out, inner)
            dw = torch.empty_like(w)
            forward.append(lambda x=x, w=w, y=y: torch.mm(x, w.t(), out=y))
            backward.append(lambda gradient=gradient, w=w, dx=dx: torch.mm(gradient, w, out=dx))
            backward.append(lambda gradient=gradient, x=x, dw=dw: torch.mm(gradient.t(), x, out=dw))
    return forward + backward


def main():
    name, dtype, steps = sys.argv[1:]
    case = cases.case_named(name)
    todo = gemms(case, torch.bfloat16 if dtype == "bf16" else torch.float32)
    for _ in range(int(steps)):
        start = time.perf_counter()
        for gemm in todo:
            gemm()
        if case.device == "cuda":
            torch.cuda.synchronize()
        print(json.dumps({"ms": (time.perf_counter() - start) * 1e3, "loss": None}), flush=True)


if __name__ == "__main__":
    main()
