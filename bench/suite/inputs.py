"""Makes what all contenders of a case start from: the same weights and the same tokens.

The weights are a Hugging Face folder. The tokens are a corpus for `megatron pretrain`, and the rows
of it that training sees, for the peers."""
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEGATRON = os.environ.get("MEGATRON", str(ROOT / "build/bin/megatron"))
SEED = 1234


def weights_folder(work, case):
    return work / f"{case.model.family}-{case.model.hidden}"


def tokens_file(work, case):
    return work / f"{case.name}.npy"


def corpus_prefix(work, case):
    return work / f"corpus-{case.model.vocab}_text_document"


def hf_config(size):
    from transformers import GPT2Config, LlamaConfig, MixtralConfig

    no_special = {"bos_token_id": None, "eos_token_id": None}
    if size.family == "gpt2":
        return GPT2Config(
            vocab_size=size.vocab,
            n_positions=size.positions,
            n_embd=size.hidden,
            n_layer=size.layers,
            n_head=size.heads,
            n_inner=size.ffn,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            **no_special,
        )
    common = {
        "vocab_size": size.vocab,
        "hidden_size": size.hidden,
        "intermediate_size": size.ffn,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.groups,
        "max_position_embeddings": size.positions,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        **no_special,
    }
    if size.family == "llama":
        return LlamaConfig(**common)
    return MixtralConfig(
        **common,
        num_local_experts=size.experts,
        num_experts_per_tok=size.top_k,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},  # as Llama's
        router_aux_loss_coef=0.0,  # the loss is that of the tokens alone
        output_router_logits=False,
    )


def make_weights(work, case):
    """transformers' own initialisation of the model, saved once."""
    folder = weights_folder(work, case)
    if not folder.exists():
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()
        torch.manual_seed(SEED)
        AutoModelForCausalLM.from_config(hf_config(case.model)).save_pretrained(folder)


def documents(vocab, count):
    """Makes documents of 200 to 600 tokens.
    The tokens' frequencies fall like those of words, so that the loss falls from the first steps
    on."""
    import numpy as np  # here and below: the list of cases needs no package

    random = np.random.default_rng(SEED)
    for _ in range(count):
        length = int(random.integers(200, 600))
        yield np.minimum(random.zipf(1.3, length), vocab - 1) - 1


def make_corpus(work, case):
    prefix = corpus_prefix(work, case)
    if not Path(f"{prefix}.bin").exists():
        text = work / "documents.jsonl"
        with open(text, "w") as file:
            for document in documents(case.model.vocab, 1500):
                file.write(json.dumps({"text": " ".join(map(str, document))}) + "\n")
        megatron(
            "preprocess-data",
            "--input",
            text,
            "--output-prefix",
            str(prefix).removesuffix("_text_document"),
            "--tokenizer-type",
            "NullTokenizer",
            "--vocab-size",
            case.model.vocab,
            "--append-eod",
        )


def make_tokens(work, case, steps):
    """The rows of seq + 1 ids that the first `steps` steps of training see."""
    samples = steps * case.batch
    shown = megatron(
        "dataset",
        "show",
        "--data-path",
        corpus_prefix(work, case),
        "--split",
        "1,0,0",
        "--seq-length",
        case.seq,
        "--seed",
        SEED,
        "--num-samples",
        f"{samples},0,0",
        "--split-name",
        "train",
        "--start",
        0,
        "--count",
        samples,
        "--data-cache-path",
        work / "cache",
    )
    rows = [json.loads(line)["tokens"] for line in shown.splitlines() if line.startswith("{")]
    import numpy as np

    np.save(tokens_file(work, case), np.array(rows, dtype=np.int64))


def experts_file(work, case):
    return work / f"{case.name}.bin"


def make_inputs(work, case, steps):
    """Everything that turns of `case` read, in the folder `work`."""
    if case.kind == "step":
        make_weights(work, case)
        make_corpus(work, case)
        make_tokens(work, case, steps)
    elif case.kind == "experts":
        sizes = map(str, (case.rows, case.hidden, case.ffn, case.experts, case.top_k))
        subprocess.run(
            [
                sys.executable,
                ROOT / "bench/suite/moe_turn.py",
                experts_file(work, case),
                "inputs",
                *sizes,
            ],
            check=True,
        )


def megatron(*arguments):
    done = subprocess.run([MEGATRON, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(
            f"megatron {arguments[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout
