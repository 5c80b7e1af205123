"""Writes tests/inference/fixtures/{sampling,beams}.json from the real transformers.

Run with the parity environment's Python: `python tests/parity/make_sampling_fixtures.py`.
sampling.json: logits, options, and the probabilities after the processors that generate() builds
for them, in its order. beams.json: a table of logits by position mod 3 and last token, and the
texts and scores that beam search finds in it.
"""
import json
from pathlib import Path

import torch
import transformers
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

FOLDER = Path(__file__).resolve().parents[1] / "inference/fixtures"
VOCAB_SIZE = 12


class TableConfig(PretrainedConfig):
    model_type = "table"

    def __init__(self, vocab_size=VOCAB_SIZE, **others):
        self.vocab_size = vocab_size
        super().__init__(**others)


class TableModel(PreTrainedModel, GenerationMixin):
    config_class = TableConfig
    main_input_name = "input_ids"

    def __init__(self, config):
        super().__init__(config)
        generator = torch.Generator().manual_seed(5)
        size = (3, config.vocab_size, config.vocab_size)
        table = torch.randn(size, generator=generator) * 1.5
        self.table = torch.nn.Parameter((table * 1024).round() / 1024)
        self.post_init()

    def _init_weights(self, module):
        pass

    def forward(self, input_ids, **others):
        positions = torch.arange(input_ids.shape[1]) % 3
        return CausalLMOutput(logits=self.table[positions, input_ids])


def rounded(tensor, digits=9):
    return [float(f"{x:.{digits}g}") for x in tensor.double().flatten().tolist()]


def beams():
    model = TableModel(TableConfig()).eval()
    cases = []
    for prompt in ([3], [7, 1, 4]):
        for num_beams in (2, 3, 5):
            for length_penalty in (0.0, 1.0, 2.0, -1.0):
                for end_tokens, max_new_tokens in (([0], 7), ([0, 9], 5), ([2], 1), ([5], 12)):
                    for repetition_penalty in (1.0, 1.7) if num_beams == 3 else (1.0,):
                        found = model.generate(
                            torch.tensor([prompt]),
                            generation_config=GenerationConfig(
                                num_beams=num_beams,
                                num_return_sequences=num_beams,
                                length_penalty=length_penalty,
                                repetition_penalty=repetition_penalty,
                                max_new_tokens=max_new_tokens,
                                eos_token_id=end_tokens,
                                pad_token_id=VOCAB_SIZE,
                                do_sample=False,
                                use_cache=False,
                                output_scores=True,
                                return_dict_in_generate=True,
                            ),
                        )
                        texts = [
                            [i for i in ids[len(prompt) :] if i != VOCAB_SIZE]
                            for ids in found.sequences.tolist()
                        ]
                        cases.append(
                            {
                                "prompt": prompt,
                                "num_beams": num_beams,
                                "length_penalty": length_penalty,
                                "repetition_penalty": repetition_penalty,
                                "stop": end_tokens,
                                "max_new_tokens": max_new_tokens,
                                "ids": texts,
                                "scores": rounded(found.sequences_scores),
                            }
                        )
    return {"table": rounded(model.table.detach()), "cases": cases}


def filters():
    generator = torch.Generator().manual_seed(9)
    model = TableModel(TableConfig(vocab_size=40))
    cases = []
    options = [
        {"temperature": 0.7},
        {"top_k": 7},
        {"min_p": 0.2},
        {"min_p": 1.0},
        {"typical_p": 0.3},
        {"typical_p": 0.9},
        {"typical_p": 0.01},
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.6},
        {"temperature": 1.8, "min_p": 0.05, "typical_p": 0.6},
        {"temperature": 0.4, "top_k": 20, "typical_p": 0.8, "repetition_penalty": 2.0},
        {"top_k": 12, "min_p": 0.1},
    ]
    for option in options:
        for scale in (1.0, 4.0):
            logits = (torch.randn(40, generator=generator) * scale * 256).round() / 256
            logits[17] = -float("inf")
            seen = torch.randint(0, 40, (15,), generator=generator)
            config = GenerationConfig(do_sample=True, **{"top_k": 0, **option})
            model._prepare_special_tokens(config, False)
            processors = model._get_logits_processor(config, input_ids_seq_length=15)
            probabilities = processors(seen[None], logits[None].clone()).double().softmax(-1)[0]
            cases.append(
                {
                    "options": option,
                    "seen": seen.tolist(),
                    "logits": [x if x > -1e30 else None for x in logits.tolist()],
                    "probabilities": rounded(probabilities),
                }
            )
    return {"cases": cases}


for name, content in (("beams", beams()), ("sampling", filters())):
    content = {"transformers": transformers.__version__, **content}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")) + "\n")
