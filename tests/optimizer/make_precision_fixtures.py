"""Writes tests/optimizer/fixtures/mixed_precision.json and loss_scale.json.

They hold training in 16 bits as PyTorch and Megatron Core do it.

Run with an environment that has torch and megatron-core:
`python tests/optimizer/make_precision_fixtures.py`.
Mixed precision: torch.optim on float32 main weights; gradients come scaled by the loss scale, are
unscaled in float32 and clipped as Megatron does; the model's weights are the rounded main weights.
With states below float32 the rule is spelled out: states are widened, updated and rounded.
Loss scale: Megatron Core's own DynamicGradScaler, fed with the listed steps.
"""
import importlib.util
import json
from pathlib import Path

import torch

FOLDER = Path(__file__).resolve().parent / "fixtures"
STEPS = 5
ADAM = dict(optimizer="adam", beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)
SGD = dict(optimizer="sgd", weight_decay=0.1)
CASES = (
    dict(
        ADAM, dtype="bf16", lr=0.01, decoupled_lr=None, clip_grad=1.0, loss_scale=1.0, state="fp32"
    ),
    dict(
        ADAM,
        dtype="fp16",
        lr=0.003,
        decoupled_lr=0.02,
        clip_grad=0.5,
        loss_scale=65536.0,
        state="fp32",
    ),
    dict(
        ADAM, dtype="bf16", lr=0.01, decoupled_lr=0.001, clip_grad=1.0, loss_scale=1.0, state="bf16"
    ),
    dict(SGD, dtype="bf16", lr=0.1, decoupled_lr=None, clip_grad=1.0, loss_scale=1.0, momentum=0.9),
    dict(
        SGD, dtype="fp16", lr=0.1, decoupled_lr=0.01, clip_grad=0.0, loss_scale=1000.0, momentum=0.0
    ),
)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class AdamWithNarrowStates:
    """AdamW whose moments live in a narrow type between steps."""

    def __init__(self, groups, case):
        self.groups, self.case, self.step_count = groups, case, 0
        dtype = DTYPES[case["state"]]
        self.state = {
            p: [torch.zeros_like(p, dtype=dtype) for _ in range(2)]
            for g in groups
            for p in g["params"]
        }

    def step(self):
        self.step_count += 1
        beta1, beta2 = self.case["beta1"], self.case["beta2"]
        for group in self.groups:
            for p in group["params"]:
                m, v = (s.float() for s in self.state[p])
                m = beta1 * m + (1 - beta1) * p.grad
                v = beta2 * v + (1 - beta2) * p.grad * p.grad
                denominator = v.sqrt() / (1 - beta2**self.step_count) ** 0.5 + self.case["eps"]
                with torch.no_grad():
                    p -= group["lr"] * (
                        m / (1 - beta1**self.step_count) / denominator + group["weight_decay"] * p
                    )
                self.state[p] = [m.to(DTYPES[self.case["state"]]), v.to(DTYPES[self.case["state"]])]


def make(case, weight, bias):
    """`weight` is decayed and stands for an embedding, `bias` is neither."""
    groups = [
        dict(
            params=[weight],
            lr=case["lr"] if case["decoupled_lr"] is None else case["decoupled_lr"],
            weight_decay=case["weight_decay"],
        ),
        dict(params=[bias], lr=case["lr"], weight_decay=0.0),
    ]
    if case["optimizer"] == "sgd":
        return torch.optim.SGD(groups, momentum=case["momentum"])
    if case["state"] != "fp32":
        return AdamWithNarrowStates(groups, case)
    return torch.optim.AdamW(groups, betas=(case["beta1"], case["beta2"]), eps=case["eps"])


def evaluate(case):
    generator = torch.Generator().manual_seed(1234)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    parameters = {"weight": torch.nn.Parameter(draw(3, 5)), "bias": torch.nn.Parameter(draw(5))}
    result = {"settings": case, "steps": [], **{name: p.tolist() for name, p in parameters.items()}}
    optimizer = make(case, *parameters.values())
    for _ in range(STEPS):
        step = {}
        for name, p in parameters.items():
            scaled = draw(*p.shape) * case["loss_scale"]
            step[name + "_grad"] = scaled.tolist()
            p.grad = scaled / case["loss_scale"]
        norm = sum(p.grad.double().pow(2).sum() for p in parameters.values()).sqrt().item()
        factor = case["clip_grad"] / (norm + 1e-6) if case["clip_grad"] > 0 else 1.0
        for p in parameters.values():
            if factor < 1:
                p.grad.mul_(factor)
        optimizer.step()
        step["norm"] = norm
        for name, p in parameters.items():
            step["main_" + name], step[name] = (
                p.tolist(),
                p.detach().to(DTYPES[case["dtype"]]).float().tolist(),
            )
        result["steps"].append(step)
    return result


def load_grad_scaler():
    """Megatron Core's module by its file, on the CPU."""
    package = importlib.util.find_spec("megatron.core").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location(
        "grad_scaler", Path(package) / "optimizer/grad_scaler.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class OnCpu:
        def __getattr__(self, name):
            return getattr(torch, name)

        @staticmethod
        def tensor(data, dtype=None, device=None):
            return torch.tensor(data, dtype=dtype)

    module.torch = OnCpu()
    return module.DynamicGradScaler


SCALERS = (
    # initial, min, window, hysteresis; steps: g finite, b not
    (65536.0, 1.0, 4, 2, "ggggbgbbgggggbggggbbbbggggggggg"),
    (8.0, 1.0, 3, 1, "bbbbbbggggggggbgggbbggg"),
    (4294967296.0, 1024.0, 1000, 3, "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbgbb"),
    (1.0, 1.0, 1, 1, "gggbgbgbbbbggg"),
)


def replay(scaler_type, initial, minimum, window, hysteresis, steps):
    scaler = scaler_type(
        initial,
        minimum,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=window,
        hysteresis=hysteresis,
    )
    states = []
    for step in steps:
        scaler.update(step == "b")
        state = scaler.state_dict()
        states.append([state["scale"].item(), state["growth_tracker"], state["hysteresis_tracker"]])
    return dict(
        initial=initial,
        min=minimum,
        window=window,
        hysteresis=hysteresis,
        steps=steps,
        states=states,
    )


def write(name, source, cases):
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    (FOLDER / name).write_text('{"source": "%s", "cases": [\n%s\n]}\n' % (source, lines))


write(
    "mixed_precision.json",
    "torch " + torch.__version__.split("+")[0],
    [evaluate(case) for case in CASES],
)
scaler_type = load_grad_scaler()
write(
    "loss_scale.json",
    "megatron-core DynamicGradScaler",
    [replay(scaler_type, *case) for case in SCALERS],
)
