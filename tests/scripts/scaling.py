"""The one rule that makes every script small: two ranks, two steps, tiny sizes (see README.md)."""

import re

from flags import Script

HEAD_DIM = 16
LONGEST = 64  # tokens of a sequence
PIPELINE_PLACEMENT = (
    "--num-layers-per-virtual-pipeline-stage",
    "--num-virtual-stages-per-pipeline-rank",
    "--pipeline-model-parallel-layout",
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--account-for-embedding-in-pipeline-split",
)
# Settings of Pai-Megatron-Patch's own data and tokenizer classes, which data.py replaces.
PATCH_ONLY = ("--patch-tokenizer-type", "--max-padding-length", "--extra-vocab-size", "--dataset")


class Scaled:
    """The sizes of the small run that `script` becomes."""

    def __init__(self, script: Script):
        number = script.number
        self.script = script
        tensor = number("--tensor-model-parallel-size", "--model-parallel-size", default=1)
        pipeline = number("--pipeline-model-parallel-size", default=1)
        context = number("--context-parallel-size", default=1)
        expert = number("--expert-model-parallel-size", default=1)
        self.kept = self.kept_axis(tensor, pipeline, context, expert)
        self.cuts_tensor = tensor > 1 and self.kept != "tensor"
        self.replicas = 2 if self.kept in ("data", "expert") else 1
        self.scale_model()
        self.scale_batch()

    def kept_axis(self, tensor: int, pipeline: int, context: int, expert: int) -> str:
        if pipeline > 1 and self.script.has(*PIPELINE_PLACEMENT):
            return "pipeline"
        sizes = {"context": context, "expert": expert, "tensor": tensor, "pipeline": pipeline}
        return next((axis for axis, size in sizes.items() if size > 1), "data")

    def scale_model(self) -> None:
        number = self.script.number
        has_chunks = self.script.has(
            "--num-layers-per-virtual-pipeline-stage",
            "--num-virtual-stages-per-pipeline-rank",
            "--pipeline-model-parallel-layout",
        )
        most = 2 * (2 if self.kept == "pipeline" or has_chunks else 1)
        self.layers = min(number("--num-layers", default=most), most)
        heads = number("--num-attention-heads", default=4)
        groups = (
            number("--num-query-groups", default=1)
            if self.script.has("--group-query-attention")
            else heads
        )
        self.groups = min(groups, 2 if groups < heads else 4)
        self.heads = self.groups * min(max(heads // max(groups, 1), 1), 4)
        hidden = number("--hidden-size", default=heads * HEAD_DIM)
        head_dim = number("--kv-channels", default=max(hidden // heads, 1))
        self.hidden = max(round(self.heads * HEAD_DIM * hidden / (heads * head_dim) / 16), 1) * 16
        self.hidden_ratio = self.hidden / hidden

    def scale_batch(self) -> None:
        micro = self.script.number("--micro-batch-size", "--batch-size", default=1)
        whole = self.script.number("--global-batch-size", default=micro)
        self.micro = min(micro, 2)
        self.unit = self.micro * self.replicas
        self.batch = self.unit * min(max(whole // micro, 1), 4)
        self.samples = 2 * self.batch
        if self.script.has("--rampup-batch-size"):
            self.batch = self.unit * 4
            self.samples = self.unit + self.batch
        elif self.script.has("--step-batch-size-schedule"):
            self.samples = 3 * self.unit

    @property
    def ranks(self) -> int:
        return 2

    def layers_list(self, value: str) -> str:
        """'([0]*3+[1]*58)' for this many layers: one of the first kind if there are two."""
        if "[" not in value:
            return value
        return f"([0]*1+[1]*{self.layers - 1})" if "[0]" in value else f"([1]*{self.layers})"

    def layout(self) -> str:
        mtp = "m" if self.script.number("--mtp-num-layers") else ""
        return f"E|t*{self.layers // 2}|t*{self.layers - self.layers // 2}{mtp}|L"

    def step_schedule(self) -> str:
        """The first step has one unit, the second two."""
        return f"0:{self.unit} {self.unit * LONGEST}:{2 * self.unit}"


def sized(scaled: Scaled, value: str) -> str:
    """A width of the MLP, kept in proportion to the hidden size."""
    return str(min(max(round(float(value) * scaled.hidden_ratio / 8), 1) * 8, 8 * scaled.hidden))


def pattern(value: str) -> str:
    """A pattern of layers: each kind once, in the order of their first appearance."""
    return "".join(dict.fromkeys(re.sub(r"[^A-Za-z*\-]", "", value)))


def fewer(most: int):
    return lambda scaled, value: str(min(int(float(value)), most))


def text(value: object):
    return lambda scaled, old: str(value)


# Flag → the value in the small run. Sizes of one head, one state or one router stay as they are.
RULES = {
    "--num-layers": lambda s, v: s.layers,
    "--encoder-num-layers": lambda s, v: s.layers,
    "--decoder-num-layers": lambda s, v: s.layers,
    "--hidden-size": lambda s, v: s.hidden,
    "--ffn-hidden-size": sized,
    "--moe-ffn-hidden-size": sized,
    "--moe-shared-expert-intermediate-size": sized,
    "--num-attention-heads": lambda s, v: s.heads,
    "--num-query-groups": lambda s, v: s.groups if s.script.has("--group-query-attention") else v,
    "--kv-channels": text(HEAD_DIM),
    "--num-experts": fewer(8),
    "--moe-router-topk": fewer(4),
    "--moe-layer-freq": lambda s, v: s.layers_list(v),
    "--linear-attention-freq": lambda s, v: s.layers_list(v),
    "--window-attn-skip-freq": lambda s, v: s.layers_list(v),
    "--hybrid-layer-pattern": lambda s, v: pattern(v),
    "--hybrid-override-pattern": lambda s, v: pattern(v),
    "--mamba-num-heads": text(8),
    "--mamba-head-dim": text(HEAD_DIM),
    "--mamba-num-groups": fewer(2),
    "--mtp-num-layers": fewer(1),
    "--window-size": lambda s, v: "15,0",
    "--vocab-size": text(1024),
    "--padded-vocab-size": text(1024),
    "--seq-length": text(LONGEST),
    "--encoder-seq-length": text(LONGEST),
    "--decoder-seq-length": text(LONGEST // 2),
    "--max-position-embeddings": text(LONGEST),
    "--tensor-model-parallel-size": lambda s, v: 2 if s.kept == "tensor" else 1,
    "--model-parallel-size": lambda s, v: 2 if s.kept == "tensor" else 1,
    "--pipeline-model-parallel-size": lambda s, v: 2 if s.kept == "pipeline" else 1,
    "--context-parallel-size": lambda s, v: 2 if s.kept == "context" else 1,
    "--expert-model-parallel-size": lambda s, v: 2 if s.kept == "expert" else 1,
    "--expert-tensor-parallel-size": lambda s, v: min(int(v), 2 if s.kept == "tensor" else 1),
    "--num-distributed-optimizer-instances": fewer(1),
    "--microbatch-group-size-per-virtual-pipeline-stage": fewer(2),
    "--num-layers-per-virtual-pipeline-stage": text(1),
    "--num-virtual-stages-per-pipeline-rank": text(2),
    "--pipeline-model-parallel-layout": lambda s, v: s.layout(),
    "--decoder-first-pipeline-num-layers": text(1),
    "--decoder-last-pipeline-num-layers": lambda s, v: (
        s.layers - 1 if s.script.has("--decoder-first-pipeline-num-layers") else 1
    ),
    "--micro-batch-size": lambda s, v: s.micro,
    "--batch-size": lambda s, v: s.micro,
    "--global-batch-size": lambda s, v: s.batch,
    "--train-iters": text(2),
    "--train-samples": lambda s, v: s.samples,
    "--lr-decay-iters": text(2),
    "--lr-decay-samples": lambda s, v: s.samples,
    "--lr-warmup-iters": fewer(1),
    "--lr-warmup-samples": lambda s, v: min(int(v), s.unit),
    "--lr-wsd-decay-iters": text(1),
    "--lr-wsd-decay-samples": lambda s, v: s.unit,
    "--recompute-num-layers": fewer(1),
    "--cpu-offloading-num-layers": fewer(1),
    "--exit-interval": text(2),
    "--save-interval": text(2),
    "--save-retain-interval": text(2),
    "--eval-interval": text(2),
    "--eval-iters": fewer(1),
    "--log-interval": text(1),
    "--num-workers": fewer(1),
}


def small_flags(script: Script) -> tuple[list[tuple[str, list[str]]], int]:
    """The flags of the small run, paths still as placeholders, and its number of ranks."""
    scaled = Scaled(script)
    small = []
    for flag, values in script.flags:
        if flag in PATCH_ONLY and script.header["repository"].startswith("alibaba/"):
            continue
        if flag == "--train-mode" and values == ["pretrain"]:
            continue
        if flag == "--finetune":  # there is no checkpoint to start from
            continue
        if scaled.cuts_tensor and (
            flag == "--sequence-parallel" or flag.startswith("--tp-comm-overlap")
        ):
            continue
        if flag == "--hierarchical-context-parallel-sizes":
            values = ["2" if scaled.kept == "context" else "1", "1"]
        elif flag == "--rampup-batch-size":
            values = [str(scaled.unit), str(scaled.batch - scaled.unit), str(scaled.unit)]
        elif flag == "--step-batch-size-schedule":
            schedule = scaled.step_schedule()
            values = schedule.split() if len(values) > 1 else [schedule]
        elif flag in RULES and values:
            values = [str(RULES[flag](scaled, values[0]))]
        small.append((flag, values))
    if not script.has("--train-iters", "--train-samples"):
        in_samples = script.has("--lr-decay-samples", "--lr-warmup-samples")
        length = ("--train-samples", scaled.samples) if in_samples else ("--train-iters", 2)
        small.append((length[0], [str(length[1])]))
    if not script.has("--log-interval"):
        small.append(("--log-interval", ["1"]))
    if script.has("--fp16") and not script.has("--loss-scale", "--initial-loss-scale"):
        small.append(("--initial-loss-scale", ["1024"]))
    names = ("--hybrid-layer-pattern", "--hybrid-override-pattern")
    has_pattern = any("M" in values[0] for flag, values in small if flag in names)
    if has_pattern or script.has("--hybrid-attention-ratio"):
        # The defaults are of wide models.
        for flag, value in (("--mamba-head-dim", HEAD_DIM), ("--mamba-num-groups", 2)):
            if not script.has(flag):
                small.append((flag, [str(value)]))
    return small, scaled.ranks
