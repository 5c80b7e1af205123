"""One rank of DeepSpeed on a CPU, started by peer_ranks.py, for deepspeed_parity.py.

Each case of DIR/cases.json trains a small model for some steps under a stage of ZeRO and saves it
as DeepSpeed does. A case with "args" has parameters with the names of Megatron-DeepSpeed."""
import argparse
import json
import os
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed  # noqa: E402
import deepspeed.comm.comm  # noqa: E402, F401
import torch  # noqa: E402

# It would compile an extension for collectives in shared memory.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
torch.set_num_threads(1)
NUM_STEPS = 3


class Parameters(torch.nn.Module):
    """Parameters by their full names. Stage 3 gathers those of the modules that are called."""

    def add(self, path, shape):
        first, *rest = path
        if not rest:
            self.register_parameter(first, torch.nn.Parameter(torch.randn(shape)))
            return
        if first not in self._modules:
            self.add_module(first, Parameters())
        self._modules[first].add(rest, shape)

    def forward(self, scale):
        own = [parameter.square().sum() for parameter in self.parameters(recurse=False)]
        return scale * sum([*own, *(child(scale) for child in self.children())])


def build(case):
    torch.manual_seed(1)
    if "shapes" in case:
        model = Parameters()
        for name, shape in case["shapes"].items():
            model.add(name.split("."), shape)
        return model
    import transformers  # takes most of the time of a start

    config = transformers.LlamaConfig(**case["config"])
    config.architectures = ["LlamaForCausalLM"]
    model = transformers.LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in case["frozen"])
    return model


def loss_of(engine, case, step):
    torch.manual_seed(100 * step + torch.distributed.get_rank())
    if "shapes" in case:
        return engine(1.0 + step)
    rows = torch.randint(0, case["config"]["vocab_size"], (1, 16))
    return engine(input_ids=rows, labels=rows).loss


def train(case, directory):
    model = build(case)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [  # as Megatron-LM and the Trainer divide them
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0},
    ]
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW([group for group in groups if group["params"]], lr=1e-2),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": case["stage"]},
            "bf16": {"enabled": case["bf16"]},
        },
    )
    for step in range(NUM_STEPS):
        engine.backward(loss_of(engine, case, step))
        engine.step()
    state = {}
    if "args" in case:
        args = argparse.Namespace(**case["args"])
        state = {"args": args, "checkpoint_version": 3.0, "iteration": NUM_STEPS}
    folder = Path(directory) / case["folder"]
    engine.save_checkpoint(str(folder), client_state=state)
    if "config" in case and torch.distributed.get_rank() == 0:
        model.config.save_pretrained(folder)
    engine.destroy()


def main():
    directory = sys.argv[1]
    deepspeed.init_distributed("gloo")
    for case in json.loads((Path(directory) / "cases.json").read_text()):
        train(case, directory)
        torch.distributed.barrier()


if __name__ == "__main__":
    main()
