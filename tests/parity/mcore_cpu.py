"""Runs the real megatron-core (PyPI) on a CPU with Gloo, as a reference to compare against.

    import mcore_cpu; mcore_cpu.init(tp=1, pp=1, cp=1, ep=1)      # before any other megatron import

It only removes megatron-core's assumptions that a CUDA device is present; the maths is untouched.
peer_ranks.py starts several ranks; each calls finish() at its end, or answer_cases().
"""
import contextlib, json, os, sys
from pathlib import Path

for k, v in dict(
    RANK="0",
    WORLD_SIZE="1",
    LOCAL_RANK="0",
    MASTER_ADDR="127.0.0.1",
    MASTER_PORT="29533",
    TORCH_CUDA_ARCH_LIST="9.0",
).items():
    os.environ.setdefault(k, v)
import torch, torch.distributed as dist
import torch.utils.cpp_extension as _ce


def _no_cuda(*a, **k):
    raise RuntimeError("no CUDA here")


def init(tp=1, pp=1, cp=1, ep=1, vpp=None, **kw):
    _ce.load_inline = _no_cuda  # inference/unified_memory.py builds a CUDA extension on import
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.set_device = lambda *a, **k: None
    torch.cuda.synchronize = lambda *a, **k: None
    torch.cuda.stream = lambda *a, **k: contextlib.nullcontext()
    torch.Tensor.cuda = lambda self, *a, **k: self
    torch.nn.Module.cuda = lambda self, *a, **k: self
    if not dist.is_initialized():
        if os.environ["WORLD_SIZE"] == "1":
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        else:
            dist.init_process_group("gloo")
    from megatron.core import parallel_state as ps

    if ps.model_parallel_is_initialized():
        return ps
    ps.initialize_model_parallel(
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        context_parallel_size=cp,
        expert_model_parallel_size=ep,
        virtual_pipeline_model_parallel_size=vpp,
        **kw
    )

    class _Stream:  # streams and events become no-ops
        def __init__(self, *a, **k):
            pass

        def __getattr__(self, name):
            return lambda *a, **k: _Stream()

    torch.cuda.Stream = torch.cuda.Event = _Stream
    torch.cuda.current_stream = lambda *a, **k: _Stream()
    import megatron.core.transformer.moe.moe_utils as mu

    if not hasattr(mu, "te_general_gemm"):
        mu.te_general_gemm = None  # plain torch.mm for the router
    # MLA passes k_channels/v_channels, which only TE's class takes.
    import megatron.core.transformer.dot_product_attention as dpa

    _init = dpa.DotProductAttention.__init__

    def init_without_channels(self, *a, k_channels=None, v_channels=None, **k):
        _init(self, *a, **k)
        if v_channels is not None:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    dpa.DotProductAttention.__init__ = init_without_channels
    import megatron.core.tensor_parallel.random as r

    r.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    return ps


def finish():
    """Ends a rank when the others are done too.
    One that leaves early takes its connections with it."""
    dist.barrier()
    dist.destroy_process_group()


def answer_cases(answer):
    """Calls answer(case, DIR) for each case of DIR/cases.json, and ends this rank.
    DIR is the script's argument."""
    directory = Path(sys.argv[1])
    for case in json.loads((directory / "cases.json").read_text()):
        answer(case, directory)
    finish()
