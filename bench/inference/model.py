"""The model that all contenders run: a random Llama with the sizes of Qwen2.5-0.5B, in bfloat16."""
import json

SIZES = {
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
}
SMALL = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
}
BYTES = 2  # of a number


def config_of(sizes):
    return {
        **sizes,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "head_dim": sizes["hidden_size"] // sizes["num_attention_heads"],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": "bfloat16",
    }


def layer_gemms(sizes):
    """(in, out) of the GEMMs of a layer, as an engine runs them."""
    hidden, ffn = sizes["hidden_size"], sizes["intermediate_size"]
    keys = hidden // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
    return [(hidden, hidden + 2 * keys), (hidden, hidden), (hidden, 2 * ffn), (ffn, hidden)]


def weight_bytes(sizes):
    """What a decode step reads of the weights. The embedding is the output layer too."""
    layer = sum(rows * columns for rows, columns in layer_gemms(sizes))
    head = sizes["hidden_size"] * sizes["vocab_size"]
    return BYTES * (sizes["num_hidden_layers"] * layer + head)


def cache_bytes(sizes, positions):
    """What a decode step reads of the keys and values of a sequence."""
    keys = sizes["hidden_size"] // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
    return BYTES * 2 * sizes["num_hidden_layers"] * keys * positions


def random_tensors(sizes):
    import torch  # here: sizes need no package

    hidden, ffn, vocab = (
        sizes[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    keys = hidden // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
    generator = torch.Generator().manual_seed(1234)

    def matrix(rows, columns):
        return (0.02 * torch.randn(rows, columns, generator=generator)).bfloat16()

    tensors = {"model.embed_tokens.weight": matrix(vocab, hidden)}
    for layer in range(sizes["num_hidden_layers"]):
        for name, rows, columns in (
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", keys, hidden),
            ("self_attn.v_proj", keys, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", ffn, hidden),
            ("mlp.up_proj", ffn, hidden),
            ("mlp.down_proj", hidden, ffn),
        ):
            tensors[f"model.layers.{layer}.{name}.weight"] = matrix(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{name}.weight"] = torch.ones(hidden).bfloat16()
    tensors["model.norm.weight"] = torch.ones(hidden).bfloat16()
    return tensors


def write(folder, sizes):
    """Writes a Hugging Face folder, unless it is there."""
    from safetensors.torch import save_file

    config = json.dumps(config_of(sizes), indent=1)
    path = folder / "config.json"
    if path.exists() and path.read_text() == config:
        return
    folder.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    (folder / "model.gguf").unlink(missing_ok=True)
    save_file(random_tensors(sizes), folder / "model.safetensors", metadata={"format": "pt"})
    path.write_text(config)
