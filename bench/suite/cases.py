"""What is timed: models, shapes and dtypes, as data.

A case is one model on one batch shape. Every contender of a case does the same training step."""
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Model:
    """Holds the sizes of a decoder.
    `family` (gpt2, llama or mixtral) chooses its block, norm, activation and positions."""

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    groups: int
    ffn: int
    vocab: int
    positions: int
    experts: int = 0  # of each layer; 0: a dense MLP
    top_k: int = 0

    def head_size(self):
        return self.hidden // self.heads

    def linears(self):
        """Lists every weight matrix that multiplies activations, output head included.
        An entry is (name, out features, in features, how many)."""
        kv = self.groups * self.head_size()
        gated = 1 if self.family == "gpt2" else 2
        mlps = self.layers * max(1, self.experts)
        routers = [("router", self.experts, self.hidden, self.layers)] if self.experts else []
        return [
            ("qkv", self.hidden + 2 * kv, self.hidden, self.layers),
            ("attention output", self.hidden, self.hidden, self.layers),
            *routers,
            ("mlp in", gated * self.ffn, self.hidden, mlps),
            ("mlp out", self.hidden, self.ffn, mlps),
            ("head", self.vocab, self.hidden, 1),
        ]

    def rows_of(self, linear, tokens):
        """Returns how many of the tokens multiply each matrix of that name.
        Every expert counts as if it had equally many."""
        return tokens * self.top_k // self.experts if self.experts and "mlp" in linear else tokens

    def parameters(self):
        """How many there are, with the head tied to the embedding."""
        matrices = sum(out * inner * count for _, out, inner, count in self.linears())
        if self.family != "gpt2":
            return matrices + self.hidden * (2 * self.layers + 1)
        biases = sum(out * count for name, out, _, count in self.linears() if name != "head")
        return (
            matrices
            + biases
            + self.positions * self.hidden
            + 2 * self.hidden * (2 * self.layers + 1)
        )


GPT2 = Model(
    "GPT-2 124M",
    "gpt2",
    layers=12,
    hidden=768,
    heads=12,
    groups=12,
    ffn=3072,
    vocab=50257,
    positions=1024,
)
LLAMA = Model(
    "Llama-like 110M",
    "llama",
    layers=12,
    hidden=768,
    heads=12,
    groups=4,
    ffn=2048,
    vocab=32000,
    positions=2048,
)
MIXTRAL = Model(
    "Mixtral-like 200M",
    "mixtral",
    layers=8,
    hidden=512,
    heads=8,
    groups=4,
    ffn=896,
    vocab=32000,
    positions=2048,
    experts=16,
    top_k=2,
)
TINY_GPT2 = Model(
    "GPT-2, tiny", "gpt2", layers=2, hidden=64, heads=4, groups=4, ffn=256, vocab=512, positions=64
)
TINY_LLAMA = Model(
    "Llama, tiny", "llama", layers=2, hidden=64, heads=4, groups=2, ffn=128, vocab=512, positions=64
)
TINY_MIXTRAL = Model(
    "Mixtral, tiny",
    "mixtral",
    layers=2,
    hidden=64,
    heads=4,
    groups=2,
    ffn=96,
    vocab=512,
    positions=64,
    experts=4,
    top_k=2,
)


@dataclass(frozen=True)
class Step:
    """Describes a training step of one model on batch × seq tokens.
    `name` is what --only takes, together with the dtype."""

    name: str
    model: Model
    batch: int
    seq: int
    device: str = "cpu"
    quick: bool = False  # also in --quick
    ranks: bool = False  # also on two ranks
    full = False
    kind = "step"

    def tokens(self):
        return self.batch * self.seq

    def title(self):
        return f"{self.model.name}, {self.batch} × {self.seq}"

    def gemms(self):
        """(rows, out features, in features, how many) of every GEMM with a weight."""
        return [
            (self.model.rows_of(name, self.tokens()), out, inner, count)
            for name, out, inner, count in self.model.linears()
        ]

    def parameters(self):
        return self.model.parameters()

    @property
    def experts(self):
        return self.model.experts  # of each layer; 0: none


@dataclass(frozen=True)
class Experts:
    """Describes one block of experts, forward and backward, without an optimizer.
    The block has a router, SwiGLU experts and a weighted sum."""

    name: str
    rows: int
    hidden: int
    ffn: int
    experts: int
    top_k: int
    device: str = "cpu"
    quick: bool = False
    full = False
    ranks = False
    kind = "experts"

    def tokens(self):
        return self.rows

    def title(self):
        return (
            f"block of {self.experts} experts, top {self.top_k}, "
            f"{self.hidden} → {self.ffn} (SwiGLU), {self.rows} tokens, forward and backward"
        )

    def gemms(self):
        """As if the router gave every expert as many rows."""
        rows = self.rows * self.top_k // self.experts
        return [
            (rows, 2 * self.ffn, self.hidden, self.experts),
            (rows, self.hidden, self.ffn, self.experts),
        ]

    def grouped_gemm(self):
        """A grouped GEMM of the block as gemm_bench spells it: rows, in, out, groups."""
        return f"{self.rows * self.top_k},{self.hidden},{self.ffn},{self.experts}"

    def parameters(self):
        return self.experts * (3 * self.ffn * self.hidden + self.hidden)


@dataclass(frozen=True)
class Attention:
    """Causal attention by itself, forward and backward."""

    name: str
    batch: int
    seq: int
    heads: int
    groups: int
    head_size: int
    device: str = "cpu"
    quick: bool = False
    full: bool = False  # only in --full, or by name
    ranks = False
    kind = "attention"

    def tokens(self):
        return self.batch * self.seq

    def title(self):
        heads = (
            f"{self.heads} heads"
            if self.groups == self.heads
            else f"{self.heads} heads in {self.groups} groups"
        )
        return (
            f"causal attention {self.batch} × {self.seq}, {heads} of {self.head_size}, "
            "forward and backward"
        )

    def gemms(self):
        return []

    def flop(self):
        """Two GEMMs forward and five backward, half of each under the mask."""
        return 7 * self.batch * self.heads * self.seq**2 * self.head_size

    def parameters(self):
        return 0

    def shape(self):
        """As the programs spell it."""
        return f"{self.batch}x{self.seq}x{self.heads}x{self.groups}x{self.head_size}"


@dataclass(frozen=True)
class Start:
    """From the start of the program to the end of its first step, weights drawn afresh."""

    name: str
    step: Step
    device: str = "cpu"
    quick: bool = False
    full = False
    ranks = False
    kind = "start"

    def tokens(self):
        return self.step.tokens()

    def title(self):
        return f"start to the end of the first step, {self.step.title()}"

    def gemms(self):
        return []

    def parameters(self):
        return self.step.parameters()


GPT2_STEP = Step("gpt2_4x256", GPT2, 4, 256, quick=True, ranks=True)
CASES = [
    GPT2_STEP,
    Step("gpt2_4x64", GPT2, 4, 64, quick=True),
    Step("gpt2_1x1024", GPT2, 1, 1024),
    Step("llama_4x256", LLAMA, 4, 256),
    Step("mixtral_200m_4x256", MIXTRAL, 4, 256, ranks=True),
    Experts("experts_8x2", rows=1024, hidden=768, ffn=2048, experts=8, top_k=2),
    Experts("experts_64x8", rows=512, hidden=512, ffn=1024, experts=64, top_k=8),
    Attention("attention_1x8192", 1, 8192, heads=12, groups=12, head_size=64),
    Attention("attention_4x256", 4, 256, heads=12, groups=12, head_size=64, full=True),
    Attention("attention_1x1024_gqa", 1, 1024, heads=12, groups=4, head_size=64, full=True),
    Start("start_gpt2_4x256", GPT2_STEP),
]
SMOKE_CASES = [
    Step("tiny_gpt2_2x32", TINY_GPT2, 2, 32),
    Step("tiny_llama_2x32", TINY_LLAMA, 2, 32),
    Step("tiny_mixtral_2x32", TINY_MIXTRAL, 2, 32, ranks=True),
    Experts("tiny_experts_4x2", 96, 64, 128, 4, 2),
    Attention("tiny_attention_1x128", 1, 128, heads=4, groups=2, head_size=16),
]
LLAMA_110M = replace(LLAMA, name="Llama 110M", groups=12)
MEMORY_CASES = [Step("llama_110m_4x512", LLAMA_110M, 4, 512), SMOKE_CASES[1]]
CUDA_CASES = [Step("gpt2_16x1024", GPT2, 16, 1024, "cuda")]
DTYPES = ("bf16", "fp32")


def case_named(name):
    return next(
        case for case in CASES + SMOKE_CASES + MEMORY_CASES + CUDA_CASES if case.name == name
    )


# The training step that all of them do.
LEARNING_RATE, WEIGHT_DECAY, BETAS, EPSILON, CLIP = 1e-4, 0.01, (0.9, 0.999), 1e-8, 1.0
