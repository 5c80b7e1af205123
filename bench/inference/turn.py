"""Runs one turn of a peer on the model of model.py, in a process of its own.

It prints what inference_bench.cpp prints, which also says what PROMPT, NEW, REQUESTS and the kinds
are. Before that, `gguf` writes model.gguf of a folder with the package of llama.cpp.

  turn.py DIR gguf
  turn.py DIR transformers|llama.cpp|vllm first|token|whole STEPS PROMPT NEW REQUESTS"""
import ctypes
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

# As the programs of ours do it (bench/program.h).
now = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter
THREADS = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))


def prompt_of(request, length, vocab_size):
    return [(1 + 7919 * i + 104729 * request) % vocab_size for i in range(length)]


def loss_of(logits):
    """−log p of the most likely token."""
    logits = np.asarray(logits, dtype=np.float64)
    return float(np.log(np.exp(logits - logits.max()).sum()))


class Steps:
    """Times passes. A contender calls `begin` before the first one, and `token` after each that
    gave every request a token."""

    def begin(self):
        self.times = [now()]

    def token(self):
        self.times.append(now())


def print_steps(seconds, loss):
    for each in seconds:
        print(json.dumps({"ms": each * 1e3, "loss": loss}), flush=True)


class Transformers:
    """generate() with SDPA, all requests as one batch."""

    def __init__(self, folder, prompts, _):
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(THREADS)
        self.model_ = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, attn_implementation="sdpa"
        )
        self.ids_ = torch.tensor(prompts)
        self.torch_ = torch

    def loss(self):
        with self.torch_.inference_mode():
            logits = self.model_(self.ids_[:1], logits_to_keep=1).logits[0, -1]
        return loss_of(logits.float().numpy())

    def generate(self, count, steps):
        class Streamer:
            """Is told of the prompts first."""

            def __init__(self):
                self.has_begun = False

            def put(self, _):
                if self.has_begun:
                    steps.token()
                self.has_begun = True

            def end(self):
                pass

        steps.begin()
        self.model_.generate(
            self.ids_,
            attention_mask=self.torch_.ones_like(self.ids_),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            streamer=Streamer(),
        )


class LlamaCpp:
    """llama_decode() on batches, with the settings of llama.cpp but for the sizes."""

    MOST_TOKENS = 2048  # of a batch

    def __init__(self, folder, prompts, new_tokens):
        import llama_cpp

        self.lib_, self.prompts_ = llama_cpp, prompts
        self.quiet_ = llama_cpp.llama_log_callback(lambda *_: None)  # kept: C has its address
        llama_cpp.llama_log_set(self.quiet_, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        path = str(folder / "model.gguf").encode()
        self.model_ = llama_cpp.llama_model_load_from_file(
            path, llama_cpp.llama_model_default_params()
        )
        vocab = llama_cpp.llama_model_get_vocab(self.model_)
        self.vocab_size_ = llama_cpp.llama_vocab_n_tokens(vocab)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = len(prompts) * ((len(prompts[0]) + new_tokens + 256) // 256 * 256)
        params.n_seq_max = len(prompts)
        params.n_batch = self.MOST_TOKENS
        params.n_threads = params.n_threads_batch = THREADS
        self.context_ = llama_cpp.llama_init_from_model(self.model_, params)
        assert self.context_, "llama.cpp makes no context"
        self.batch_ = llama_cpp.llama_batch_init(self.MOST_TOKENS, 0, 1)
        self.clear()

    def clear(self):
        self.lib_.llama_memory_clear(self.lib_.llama_get_memory(self.context_), True)

    def decode(self, tokens):
        """Computes (token, position, sequence, whether logits are wanted) and returns the logits
        by sequence."""
        logits = {}
        for first in range(0, len(tokens), self.MOST_TOKENS):
            part = tokens[first : first + self.MOST_TOKENS]
            batch = self.batch_
            batch.n_tokens = len(part)
            for place, (token, position, sequence, wants) in enumerate(part):
                batch.token[place], batch.pos[place] = token, position
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, sequence
                batch.logits[place] = wants
            assert self.lib_.llama_decode(self.context_, batch) == 0, "llama_decode failed"
            for place, (_, _, sequence, wants) in enumerate(part):
                if wants:
                    row = self.lib_.llama_get_logits_ith(self.context_, place)
                    logits[sequence] = np.ctypeslib.as_array(row, (self.vocab_size_,))
                    self.next_[sequence] = int(logits[sequence].argmax())
        return logits

    def prefill(self, prompts):
        self.next_ = {}
        return self.decode(
            [
                (token, position, sequence, position == len(prompt) - 1)
                for sequence, prompt in enumerate(prompts)
                for position, token in enumerate(prompt)
            ]
        )

    def loss(self):
        loss = loss_of(self.prefill(self.prompts_[:1])[0])
        self.clear()
        return loss

    def generate(self, count, steps):
        self.clear()
        steps.begin()
        self.prefill(self.prompts_)
        steps.token()
        length = len(self.prompts_[0])
        for position in range(length, length + count - 1):
            self.decode([(self.next_[i], position, i, True) for i in range(len(self.prompts_))])
            steps.token()


class Vllm:
    """The engine in this process."""

    def __init__(self, folder, prompts, new_tokens):
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        import vllm

        self.vllm_, self.prompts_, self.num_ = vllm, prompts, 0
        self.engine_ = vllm.LLM(
            str(folder),
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=len(prompts[0]) + new_tokens,
            max_num_seqs=len(prompts),
            enable_prefix_caching=False,
        ).llm_engine

    def add(self, prompt, **params):
        self.num_ += 1
        params = self.vllm_.SamplingParams(
            temperature=0, ignore_eos=True, detokenize=False, **params
        )
        self.engine_.add_request(str(self.num_), {"prompt_token_ids": prompt}, params)

    def loss(self):
        self.add(self.prompts_[0], max_tokens=1, logprobs=1)
        while self.engine_.has_unfinished_requests():
            for output in self.engine_.step():
                result = output.outputs[0]
        return -result.logprobs[0][result.token_ids[0]].logprob

    def generate(self, count, steps):
        steps.begin()
        for prompt in self.prompts_:
            self.add(prompt, max_tokens=count)
        lengths = {}
        while self.engine_.has_unfinished_requests():
            for output in self.engine_.step():
                lengths[output.request_id] = len(output.outputs[0].token_ids)
            if len(lengths) == len(self.prompts_):
                steps.token()


PEERS = {"transformers": Transformers, "llama.cpp": LlamaCpp, "vllm": Vllm}


def run(folder, peer, kind, steps, prompt, new_tokens, requests):
    vocab_size = json.loads((folder / "config.json").read_text())["vocab_size"]
    prompts = [prompt_of(request, prompt, vocab_size) for request in range(requests)]
    # Some requests may get tokens while the prompts of others are prefilled.
    count = {"first": 1, "token": 1 + steps + requests // 8, "whole": new_tokens}[kind]
    contender = PEERS[peer](folder, prompts, count)
    loss, passes = contender.loss(), Steps()
    if kind == "token":
        contender.generate(count, passes)
        print_steps(np.diff(passes.times[1 : 2 + steps]), loss)
        return
    for _ in range(steps):
        contender.generate(count, passes)
        print_steps([passes.times[-1] - passes.times[0]], loss)


def write_gguf(folder):
    """Writes the weights as llama.cpp's own conversion does: norms in float32, and the channels of
    queries and keys in the order of its rotary embedding."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path.with_suffix(".part"), "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, values in bfloat16_tensors(folder / "model.safetensors"):
        new_name = names.get_name(name, try_suffixes=(".weight",))
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
        if values.ndim == 1:
            writer.add_tensor(new_name, (values.astype(np.uint32) << 16).view(np.float32))
            continue
        if (kind := name.split(".")[-2]) in heads:
            rows = values.reshape(config[heads[kind]], 2, -1, values.shape[1])
            values = rows.swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(
            new_name,
            np.ascontiguousarray(values).view(np.uint8),
            raw_dtype=gguf.GGMLQuantizationType.BF16,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".part").rename(path)


def bfloat16_tensors(path):
    """(name, bits) of the tensors of a safetensors file, which numpy has no type for."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    data = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + size)
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, data[begin:end].view(np.uint16).reshape(entry["shape"])


def main():
    folder, *words = sys.argv[1:]
    if words == ["gguf"]:
        write_gguf(Path(folder))
    else:
        run(Path(folder), *words[:2], *map(int, words[2:]))


if __name__ == "__main__":
    main()
