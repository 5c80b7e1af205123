"""Times PyTorch's scaled_dot_product_attention on the CPU: causal, forward and backward.

The tensors are contiguous [b, heads, s, d], which is the layout that it likes best."""
import argparse
import json
import math
import statistics
import time

import torch


def time_once(shape: str, dtype: torch.dtype) -> tuple[float, float]:
    b, s, n, g, d = map(int, shape.split("x"))
    q, k, v = (torch.randn(b, heads, s, d).to(dtype).requires_grad_() for heads in (n, g, g))
    dout = torch.ones(b, n, s, d, dtype=dtype)
    begin = time.perf_counter()
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=1 / math.sqrt(d), enable_gqa=n != g
    )
    turn = time.perf_counter()
    out.backward(dout)
    return 1e3 * (turn - begin), 1e3 * (time.perf_counter() - turn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", default="")
    parser.add_argument("shapes", nargs="*", default=["4x256x12x12x64", "1x8192x12x12x64"])
    options = parser.parse_args()
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    rows = []
    for shape in options.shapes:
        times = [time_once(shape, dtype) for _ in range(options.turns + 1)][1:]
        forward, backward = (statistics.median(x) for x in zip(*times))
        print(
            f"{shape:20} {options.dtype:5} forward {forward:9.2f} ms   backward {backward:9.2f} ms",
            flush=True,
        )
        rows.append(
            {"shape": shape, "dtype": options.dtype, "forward_ms": forward, "backward_ms": backward}
        )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
