"""The real lm_eval against `megatron serve`, and against its own transformers model.

The same tasks of this file (multiple choice by log-likelihoods, perplexity, and texts until a stop)
are evaluated through local-completions, with requests of ids and of text, and through
local-chat-completions. Scores, log-likelihoods and texts must be those of lm_eval's `hf` model on
the same folder."""
import json
import logging
import os
import random
import sys
import tempfile
from pathlib import Path

from report import Report
from serving import NUM_POSITIONS, ChatModel, Server

WORDS = """the a weather city Rome Köln is was what why terse tell time long number user text name
你好 42 3.5 "quoted" {} & 🎉""".split()
NUM_LINES = 24
TASKS = {
    "choices": """
output_type: multiple_choice
doc_to_text: "{{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: gold
num_fewshot: 2
fewshot_split: test
metric_list:
  - metric: acc
  - metric: acc_norm
""",
    "texts": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list:
  - metric: word_perplexity
  - metric: bits_per_byte
""",
    "until": """
output_type: generate_until
doc_to_text: "{{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs:
  until: [",", "\\n"]  # lm_eval's hf model looks for them in the names of special tokens too
  max_gen_toks: 20
  do_sample: false
metric_list:
  - metric: exact_match
""",
}


def write_tasks(folder, answers):
    """Writes a YAML file for each task and its lines. Each third answer is the model's own."""
    rng = random.Random(3)
    lines = folder / "lines.jsonl"
    with lines.open("w") as file:
        for number in range(NUM_LINES):
            question = " ".join(rng.choices(WORDS, k=rng.randint(3, 30)))
            choices = [" ".join(rng.choices(WORDS, k=rng.randint(1, 4))) for _ in range(4)]
            answer = answers(question) if number % 3 == 0 else choices[0]
            line = {
                "question": question,
                "choices": choices,
                "gold": rng.randrange(4),
                "answer": answer,
            }
            file.write(json.dumps(line) + "\n")
    for name, text in TASKS.items():
        head = f"task: {name}\ndataset_path: json\ntest_split: test\n"
        head += f"dataset_kwargs:\n  data_files:\n    test: {lines}\n"
        (folder / f"{name}.yaml").write_text(head + text)


def evaluate(kind, arguments, tasks, folder, **given):
    """Returns the scores, and the answers in the order of the lines, of each task."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    found = lm_eval.simple_evaluate(
        model=kind,
        model_args=arguments,
        tasks=list(tasks),
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
        verbosity="ERROR",
        **given,
    )
    answers = {}
    for name in tasks:
        samples = sorted(found["samples"][name], key=lambda sample: sample["doc_id"])
        answers[name] = [sample["filtered_resps"] for sample in samples]
    return found["results"], answers


def numbers_of(scores):
    return {
        name: value
        for name, value in scores.items()
        if isinstance(value, (int, float)) and "stderr" not in name
    }


def flat(answers):
    """The log-likelihoods, and whether the choice is the greedy one."""
    pairs = [pair for one in answers for pair in one]
    if not isinstance(pairs[0], (tuple, list)):
        return list(map(float, pairs)), []
    return [float(value) for value, _ in pairs], [str(greedy) for _, greedy in pairs]


def compare(report, name, ours, theirs):
    (scores, answers), (wanted_scores, wanted_answers) = ours, theirs
    for task, wanted in wanted_answers.items():
        got, expected = numbers_of(scores[task]), numbers_of(wanted_scores[task])
        said = ", ".join(f"{key.split(',')[0]} {value:.4f}" for key, value in expected.items())
        report.result(f"{name}, {task}: names of scores", sorted(got) == sorted(expected), said)
        report.close(
            f"{name}, {task}: scores", [got.get(key, -1) for key in expected], [*expected.values()]
        )
        if task == "until":
            wrong = [pair for pair in zip(answers[task], wanted) if pair[0] != pair[1]]
            report.result(f"{name}, {task}: texts", not wrong, f"{wrong[:1]}" if wrong else "")
            continue
        values, greedy = flat(answers[task])
        wanted_values, wanted_greedy = flat(wanted)
        report.close(f"{name}, {task}: log-likelihoods", values, wanted_values)
        report.result(f"{name}, {task}: greedy", greedy == wanted_greedy)


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as work, report.guard("lm_eval"):
        folder = Path(work)
        os.environ["HF_HOME"] = str(folder / "cache")
        logging.disable(logging.WARNING)
        model = ChatModel(folder / "model")

        def answers(question):
            text = model.text(model.greedy(model.ids(f"{question}\nAnswer:"), 20))
            return text.split(",")[0].split("\n")[0]

        (folder / "tasks").mkdir()
        write_tasks(folder / "tasks", answers)
        length = {"max_length": NUM_POSITIONS}
        peer = {"pretrained": str(model.folder), "device": "cpu", "dtype": "float32", **length}
        every = evaluate("hf", peer, TASKS, folder / "tasks", batch_size=1)
        chat = evaluate("hf", peer, ["until"], folder / "tasks", batch_size=1,
                        apply_chat_template=True)  # fmt: skip
        with Server(model.folder, log=folder / "log") as server:
            base = {
                "model": "model",
                "base_url": f"{server.url}/v1/completions",
                "tokenizer": str(model.folder),
                **length,
            }
            remote = {key: value for key, value in base.items() if key != "tokenizer"}
            ways = {
                "ids": {**base, "tokenizer_backend": "huggingface"},
                "ids, 8 at once": {**base, "tokenizer_backend": "huggingface", "num_concurrent": 8},
                "text": {
                    **base, "tokenizer_backend": "huggingface", "tokenized_requests": False
                },
                "the server's tokenizer": {**remote, "tokenizer_backend": "remote"},
            }  # fmt: skip
            for name, arguments in ways.items():
                with report.guard(name):
                    size = 4 if name.endswith("once") else 1
                    found = evaluate("local-completions", arguments, TASKS, folder / "tasks",
                                     batch_size=size)  # fmt: skip
                    compare(report, name, found, every)
            with report.guard("chats"):
                arguments = {
                    "model": "model", "base_url": f"{server.url}/v1/chat/completions",
                    "num_concurrent": 4, **length,
                }  # fmt: skip
                found = evaluate("local-chat-completions", arguments, ["until"], folder / "tasks",
                                 apply_chat_template=True)  # fmt: skip
                compare(report, "chats", found, chat)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
