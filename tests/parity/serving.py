"""Makes a tiny random model that holds conversations, and runs `megatron serve` on it.

The tokenizer is byte-level BPE, trained here; the chat template is the one that Qwen 2.5 was
published with. transformers' own model is the reference for the texts of the server."""
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig

import hf_models
import program
import tokenizers_parity
from chat_templates_parity import conversations

NUM_POSITIONS = 1024
LISTENING = re.compile(r"listening on http://[^:]+:(\d+)")


def qwen_template():
    package = Path(importlib.util.find_spec("axolotl").origin).parent
    return (package / "utils/chat_templates/templates/qwen_25.jinja").read_text()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class ChatModel:
    """A Hugging Face folder, and what transformers says about its model."""

    def __init__(self, folder, seed=5):
        torch.set_num_threads(1)
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        texts = [json.dumps(line, ensure_ascii=False) for _, line in conversations()]
        tokenizer = tokenizers_parity.qwen2(texts, 600)
        tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
        tokenizer.save(str(self.folder / "tokenizer.json"))
        self.end, text_end = (
            tokenizer.token_to_id(name) for name in ("<|im_end|>", "<|endoftext|>")
        )
        (self.folder / "tokenizer_config.json").write_text(
            json.dumps(
                {
                    "tokenizer_class": "PreTrainedTokenizerFast",
                    "eos_token": "<|im_end|>",
                    "pad_token": "<|endoftext|>",
                    "chat_template": qwen_template(),
                }
            )
        )
        config = LlamaConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=NUM_POSITIONS,
            bos_token_id=None,
            eos_token_id=self.end,
            pad_token_id=text_end,
        )
        self.model = hf_models.build(config, seed)
        with torch.no_grad():
            self.model.lm_head.weight[self.end] *= 1.6  # so that some texts end by themselves
        self.model.save_pretrained(self.folder)
        self.tokenizer = AutoTokenizer.from_pretrained(self.folder)

    def ids(self, text):
        return self.tokenizer(text)["input_ids"]

    def chat_ids(self, messages, **given):
        return self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False, **given
        )

    @torch.no_grad()
    def greedy(self, ids, count):
        """The ids that greedy decoding appends, with the end token if it comes."""
        made = hf_models.greedy(self.model, ids, count)
        return made[: made.index(self.end) + 1] if self.end in made else made

    def text(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def log_probs(self, ids):
        """The log-probability of each id but the first."""
        return hf_models.log_probabilities(self.model, [ids])[0].tolist()

    @torch.no_grad()
    def hidden_states(self, ids):
        """The rows behind the final norm."""
        return self.model.model(torch.tensor([ids])).last_hidden_state[0].double()


class Server:
    """`megatron serve` of a folder on a free port, for the time of a `with`; its log is `log`."""

    def __init__(self, folder, *flags, log="serve.log"):
        self.log = Path(log)
        command = [program.MEGATRON, "serve", "--load", folder, "--port", 0, *flags]
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                list(map(str, command)), stdout=output, stderr=subprocess.STDOUT
            )
        self.pid = self.process.pid

    def __enter__(self):
        deadline = time.monotonic() + 120
        while not (found := LISTENING.search(self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise program.ProgramError(f"no server: {self.log.read_text()}")
            time.sleep(0.02)
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.code = self.process.wait()

    def resident_bytes(self):
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")
