"""Writes fixtures/chat_snippets.jsonl: what Jinja2 makes of the templates in chat_snippets.txt.

The first line holds the variables. Each other one holds a template and its "text", or "error": true
where Jinja2, as transformers sets it up, refuses it. Usage: python make_chat_fixtures.py (needs
transformers; from anywhere)
"""
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures"
VARIABLES = {
    "s": "Hello, Wörld! 🎉 it's",
    "empty": "",
    "n": 7,
    "f": 2.5,
    "t": True,
    "none": None,
    "l": [3, 1, 2],
    "words": ["beta", "Alpha", "gamma", "alpha"],
    "d": {"b": 1, "a": [1.0, None, True], "items": "own", "é": "x"},
    "messages": [
        {"role": "system", "content": "  Be kind.\n"},
        {"role": "user", "content": "Hi <b>\"you\"</b> & 'me'"},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "args": {"x": 1}}]},
    ],
}



def snippets():
    """Yields the lines of the file. Those about white space are one template, which comes with each
    end of line."""
    lines = (FIXTURES / "chat_snippets.txt").read_text().split("\n")[:-1]
    white_space = lines.index("a{% if t %}")
    end = lines.index("end")
    comment = lines.index("{# comment #}a{#- x -#} b {# multi")
    for i, line in enumerate(lines):
        if i == comment:
            yield line + "\n" + lines[i + 1]
        elif i == white_space:
            yield "\n".join(lines[white_space : end + 1])
            yield "\r\n".join(lines[white_space : end + 1]) + "\r\n"
            yield "\n".join(lines[white_space : end + 1]) + "\n\n"
        elif not white_space < i <= end and i != comment + 1:
            yield line


def answer(template):
    try:
        return {"text": _compile_jinja_template(template).render(**VARIABLES)}
    except Exception:  # whatever a template raises
        return {"error": True}


def main():
    with open(FIXTURES / "chat_snippets.jsonl", "w") as file:
        file.write(json.dumps({"variables": VARIABLES}) + "\n")
        for template in snippets():
            file.write(json.dumps({"template": template, **answer(template)}) + "\n")


if __name__ == "__main__":
    main()
