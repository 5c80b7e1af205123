"""Compares `megatron tokenize --chat-text` with transformers' chat templates.

The templates are the published ones that the packages axolotl and unsloth carry. Each renders every
conversation below; where transformers refuses one, so must we.

Usage: chat_templates_parity.py [--folder DIR] [--only NAME]
  --folder DIR   also the *.jinja files in DIR
Environment: MEGATRON (default build/bin/megatron)
"""
import argparse
import ast
import copy
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import tokenizers_parity as parity
from report import Report
from tokenizers import processors
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

MEGATRON = os.environ.get(
    "MEGATRON", str(pathlib.Path(__file__).resolve().parents[2] / "build/bin/megatron")
)
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Returns the "weather" of a city\nin °C.',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {
                    "type": "string",
                    "description": "the city's name",
                    "enum": ["Köln", "Rome"],
                },
                "days": {"type": "integer", "default": 1, "minimum": 0.5},
                "where": {
                    "type": "array",
                    "items": {"type": ["number", "null"]},
                    "description": "<lat> & <lon>",
                },
                "nested": {"type": "object", "properties": {"deep": {"type": "boolean"}}},
            },
            "required": ["city"],
        },
        "return": {"type": "string", "description": "text"},
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Tells the time.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, identity="abcdef123"):
    return {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def conversations():
    """Yields (name, what the line's object holds)."""
    user = message("user", "  What is 2 < 3 & 'why'?\n\nTell \"me\".  ")
    answer = message("assistant", "Because.\n")
    system = message("system", "You are terse.  ")
    yield "user", {"messages": [user]}
    yield "prompt", {"messages": [user], "add_generation_prompt": True}
    yield "system", {"messages": [system, user], "add_generation_prompt": True}
    turns = [system, user, answer, message("user", "Und auf 中文? 🎉"), answer]
    yield "turns", {"messages": turns}
    yield "more turns", {"messages": turns + [user], "add_generation_prompt": True}
    yield "no system", {"messages": turns[1:] + [user], "add_generation_prompt": True}
    yield "wrong order", {"messages": [answer, user, user]}
    yield "other role", {"messages": [message("critic", "hm"), user]}
    yield "parts", {
        "messages": [
            message("system", [{"type": "text", "text": "Look."}]),
            message("user", [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]),
            message("assistant", [{"type": "text", "text": "c"}]),
            message("user", [{"type": "image"}, {"type": "text", "text": "what?"}]),
        ],
        "add_generation_prompt": True,
    }
    thinking = message("assistant", "<think>\nhm\n</think>\n\n4", reasoning_content="two\n")
    for flag in ({}, {"enable_thinking": True}, {"enable_thinking": False}):
        for key in ("enable_thinking", "thinking"):
            yield f"thinking {key} {list(flag.values())}", {
                "messages": [user, thinking, user],
                "add_generation_prompt": True,
                **{key: value for value in flag.values()},
            }
    yield "thinking last", {"messages": [system, user, thinking]}
    yield "tools offered", {
        "messages": [system, user],
        "tools": [WEATHER, CLOCK],
        "add_generation_prompt": True,
    }
    for form in ("dict", "text", "no id"):
        arguments = {"city": "Köln", "days": 2, "where": [1.5, None], "flag": True}
        first = call("get_weather", arguments if form != "text" else json.dumps(arguments))
        second = call("clock", {} if form != "text" else "{}", "abcdef456")
        result = message("tool", '{"t": 7}', tool_call_id="abcdef123", name="get_weather")
        if form == "no id":
            del first["id"]
            del result["tool_call_id"]
        used = [system, user, message("assistant", "", tool_calls=[first]), result]
        yield f"tool used, {form}", {"messages": used, "tools": [WEATHER, CLOCK]}
        longer = used + [
            message("assistant", "It is 7 °C."),
            message("user", "and now?"),
            message("assistant", None, tool_calls=[first, second]),
            result,
            message("tool", "noon", tool_call_id="abcdef456", name="clock"),
        ]
        yield f"tools used, {form}", {
            "messages": longer,
            "tools": [WEATHER, CLOCK],
            "add_generation_prompt": True,
        }
        yield f"tools used but not offered, {form}", {"messages": longer}
    yield "documents", {
        "messages": [user],
        "documents": [{"title": "T", "text": "long <text>"}, {"title": "U", "text": "é"}],
        "add_generation_prompt": True,
    }


def axolotl_templates():
    folder = pathlib.Path(importlib.util.find_spec("axolotl").origin).parent
    for path in sorted((folder / "utils/chat_templates/templates").glob("*.jinja")):
        yield f"axolotl {path.stem}", path.read_text()


def unsloth_templates():
    """The texts in unsloth's source that are templates; the package itself needs a GPU."""
    folder = pathlib.Path(importlib.util.find_spec("unsloth").origin).parent
    tree = ast.parse((folder / "chat_templates.py").read_text())
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        try:
            text = ast.literal_eval(node.value)
        except ValueError:
            continue
        name = node.targets[0].id
        if isinstance(text, str) and "{%" in text and "message" in text and "ollama" not in name:
            yield f"unsloth {name}", text


def theirs(template, line):
    """Returns transformers' text, or None where it refuses."""
    given = {**SPECIAL, **copy.deepcopy(line)}
    try:
        rendered, _ = render_jinja_template(
            conversations=[given.pop("messages")], chat_template=template, **given
        )
        return rendered[0], ""
    except Exception as error:  # every exception of a template is a refusal
        return None, f"{type(error).__name__}: {error}"


def ours(path, line):
    done = subprocess.run(
        [MEGATRON, "tokenize", "--chat-text", "--chat-template", str(path)],
        input=json.dumps({**SPECIAL, **line}) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 0:
        return json.loads(done.stdout), ""
    if done.returncode != 2:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr}")
    return None, done.stderr


def compare(report, name, template, folder):
    path = folder / "template.jinja"
    path.write_text(template)
    lines = list(conversations())
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda case: ours(path, case[1]), lines))
    rendered, different = 0, []
    for (case, line), (got, got_error) in zip(lines, answers):
        wanted, wanted_error = theirs(template, line)
        rendered += wanted is not None
        if got != wanted:
            different.append((case, wanted, wanted_error, got, got_error))
    report.result(name, not different, f"{rendered} of {len(lines)} conversations rendered")
    for case, wanted, wanted_error, got, got_error in different[:2]:
        print(f"     {case}\n     wanted {wanted!r} {wanted_error}")
        print(f"     got    {got!r} {got_error}")
    return rendered


def small_model(folder):
    """A tokenizer.json with special tokens, an added bos, and templates."""
    texts = [json.dumps(line, ensure_ascii=False) for _, line in conversations()]
    tokenizer = parity.llama3(texts, 600)
    names = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
    tokenizer.add_special_tokens(names)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    template = (
        "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    return {"bos_token": "<s>", "eos_token": "</s>"}, template


def compare_ids(report, folder):
    """The ids of a whole model, with its template in each place where it may be."""
    config, template = small_model(folder)
    named = [{"name": "default", "template": template}, {"name": "tool_use", "template": "tools"}]
    lines = [line for _, line in conversations() if set(line) <= {"messages", "tools"}]
    for place, value in (("text", template), ("list", named), ("file", None)):
        kept = {**config, **({"chat_template": value} if value else {})}
        (folder / "tokenizer_config.json").write_text(json.dumps(kept))
        if place == "file":
            (folder / "chat_template.jinja").write_text(template)
        theirs = PreTrainedTokenizerFast.from_pretrained(folder)
        wanted = [
            theirs.apply_chat_template(
                line["messages"], tools=line.get("tools"), return_dict=False, tokenize=True
            )
            for line in lines
        ]
        done = subprocess.run(
            [MEGATRON, "tokenize", "--chat", "--tokenizer-model", str(folder)],
            input="".join(json.dumps(line) + "\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=60,
        )
        got = [json.loads(line) for line in done.stdout.splitlines()]
        report.result(f"ids, template in a {place}", got == wanted, f"{len(wanted)} conversations")
        if got != wanted:
            print(f"     {done.stderr}\n     wanted {wanted[:1]}\n     got    {got[:1]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    templates = [*axolotl_templates(), *unsloth_templates()]
    if options.folder:
        templates += [(p.stem, p.read_text()) for p in sorted(options.folder.rglob("*.jinja"))]
    templates = [(name, text) for name, text in templates if options.only in name]
    report, useful = Report(), 0
    with tempfile.TemporaryDirectory() as folder:
        with report.guard("ids"):
            compare_ids(report, pathlib.Path(folder))
        for name, template in templates:
            with report.guard(name):
                useful += compare(report, name, template, pathlib.Path(folder)) > 0
    report.result("templates", bool(options.only) or useful >= 30, f"{useful} render conversations")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
