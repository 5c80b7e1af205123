"""Times the rival of collectives_bench: all_reduce of torch.distributed's Gloo back end.

torchrun starts it. The sizes and repeats are those of collectives_bench."""
import json
import statistics
import time

import torch
import torch.distributed as dist

SIZES = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]


def median_seconds(tensor: torch.Tensor, repeats: int) -> float:
    seconds = []
    for i in range(-2, repeats):
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        if i >= 0:
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size in SIZES:
        tensor = torch.zeros(size // 4)
        seconds = median_seconds(tensor, min(max((256 << 20) // size, 5), 300))
        if dist.get_rank() == 0:
            print(
                json.dumps(
                    {
                        "transport": "torch gloo",
                        "ranks": dist.get_world_size(),
                        "bytes": size,
                        "seconds": seconds,
                    }
                ),
                flush=True,
            )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
