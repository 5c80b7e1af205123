"""The chat page in a headless Chromium, against a stub that streams scripted answers.

Exit code 77 without Chromium. --screenshots DIR keeps pictures of the page to look at."""

import argparse
import base64
import hashlib
import http.server
import json
import math
import re
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

from browser import CHROMIUM, Browser

PAGE = Path(__file__).resolve().parents[2] / "src/megatron/server/page/chat.html"
MARKDOWN = """## Attention
Each token asks **which other tokens matter**, and takes a *weighted mean* of their values:

1. compare queries with keys
2. normalise with `softmax`
   - rows sum to one
   - <img src=x onerror="window.broken=1">

```python
def attention(q, k, v):
    return softmax(q @ k.T / sqrt(d)) @ v
```

| symbol | shape |
| --- | --- |
| `q` | s × d |

> A quoted line. [bad](javascript:window.broken=1) [good](https://example.org/a_b)"""


def policy():
    """The Content-Security-Policy that the server sends (server/page/chat_page.h)."""
    text = PAGE.read_text()

    def source(tag):
        body = re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        return f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; script-src {source('script')}; style-src {source('style')}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


class Stub(http.server.BaseHTTPRequestHandler):
    """Answers by the last message of the conversation; keeps all requests."""

    protocol_version = "HTTP/1.1"
    requests: ClassVar[list] = []
    key = None
    has_template = True
    loading = 0  # so many times more

    def log_message(self, *_):
        pass

    def reply(self, status, body, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        headers = {"Content-Type": "application/json", "Content-Length": len(data), **headers}
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, status, message, code=None, **headers):
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        self.reply(status, {"error": error}, **headers)

    def allowed(self):
        if Stub.key and self.headers.get("Authorization") != "Bearer " + Stub.key:
            self.fail(401, "A valid API key is needed.", "invalid_api_key")
            return False
        return True

    def do_GET(self):
        if self.path == "/":
            headers = {"Content_Type": "text/html; charset=utf-8"}
            headers["Content_Security_Policy"] = policy()
            return self.reply(200, PAGE.read_bytes(), **headers)
        if self.path == "/v1/models" and Stub.loading:
            Stub.loading -= 1
            return self.fail(503, "The model is loading.")
        if self.path == "/v1/models" and self.allowed():
            return self.reply(200, {"object": "list", "data": [{"id": "demo-7b"}]})
        if self.path != "/v1/models":
            self.fail(404, "no such path")

    def event(self, data):
        text = data if isinstance(data, str) else json.dumps(data)
        line = f"data: {text}\n\n".encode()
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()

    def stream(self, choices, usage=None, pause=0.004, is_whole=True):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for choice in choices:
                self.event({"choices": [{"index": 0, "finish_reason": None, **choice}]})
                time.sleep(pause)
            if usage:
                self.event({"choices": [], "usage": usage})
            if is_whole:
                self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            Stub.requests[-1]["was_left"] = True
            self.close_connection = True

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Stub.requests.append({"path": self.path, "body": body})
        if not self.allowed():
            return
        if self.path == "/v1/completions":
            return self.complete()
        if not Stub.has_template:
            return self.fail(400, "the model has no chat template", "no_chat_template")
        self.answer(body["messages"][-1]["content"])

    def complete(self):
        pieces = [" and", " it", " was", " so."]
        choices = [
            {
                "text": piece,
                "logprobs": {
                    "tokens": [piece],
                    "token_logprobs": [-0.5],
                    "top_logprobs": [{piece: -0.5, " or": -1.5}],
                },
            }
            for piece in pieces
        ]
        self.stream([*choices, {"text": "", "finish_reason": "length"}])

    def answer(self, asked):
        stop = {"delta": {}, "finish_reason": "stop"}
        if "slowly" in asked:
            return self.stream(
                [{"delta": {"content": f"word{i} "}} for i in range(2000)], pause=0.02
            )
        if "busy" in asked:
            return self.fail(429, "The queue is full.", "queue_full", Retry_After=3)
        if "cut" in asked:
            return self.stream([{"delta": {"content": "half an"}}], is_whole=False)
        if "weather" in asked:
            call = {
                "index": 0,
                "id": "c1",
                "function": {"name": "get_weather", "arguments": '{"city"'},
            }
            rest = {"index": 0, "function": {"arguments": ': "Bergen"}'}}
            choices = [{"delta": {"tool_calls": [call]}}, {"delta": {"tool_calls": [rest]}}]
            return self.stream([*choices, {"delta": {}, "finish_reason": "tool_calls"}])
        thoughts = [{"delta": {"reasoning_content": t}} for t in ("They want ", "a short text.")]
        pieces = re.findall(
            r"\s*\S+|\s+$", MARKDOWN if "attention" in asked else f"You said: {asked}"
        )
        words = []
        for i, piece in enumerate(pieces):
            p = 0.15 + 0.8 * ((i * 7) % 10) / 10
            top = [
                {"token": piece, "logprob": math.log(p)},
                {"token": " maybe", "logprob": math.log(0.9 * (1 - p))},
            ]
            token = {"token": piece, "logprob": math.log(p), "top_logprobs": top}
            words.append({"delta": {"content": piece}, "logprobs": {"content": [token]}})
        usage = {
            "prompt_tokens": 21,
            "completion_tokens": len(words),
            "prompt_tokens_details": {"cached_tokens": 16},
        }
        self.stream([*thoughts, *words, stop], usage)


class Checks:
    def __init__(self, browser, url, folder):
        self.browser, self.url, self.folder, self.failures = browser, url, folder, 0

    def result(self, name, passed, detail=""):
        self.failures += not passed
        print(f"{'ok  ' if passed else 'FAIL'} {name}{': ' if detail else ''}{detail}", flush=True)

    def picture(self, name):
        if self.folder:
            self.browser.screenshot(self.folder / f"{name}.png")

    def text(self, selector):
        nodes = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return self.browser.run(f"{nodes}.map(n => n.textContent).join('|')")

    def say(self, text):
        self.browser.run("document.getElementById('input').focus()")
        self.browser.type(text)
        self.browser.key("Enter")

    def is_done(self):
        return self.browser.wait("!document.querySelector('[aria-busy=true]') && !running")

    def click(self, selector, text=None):
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        which = f".filter(n => n.textContent == {json.dumps(text)})" if text else ""
        self.browser.run(f"{found}{which}.at(-1).click()")

    def first_page(self):
        self.browser.open(self.url)
        self.result("the model is named", self.browser.wait("model.value == 'demo-7b'"))
        self.picture("welcome")

    def markdown(self):
        self.say("Explain attention, please")
        self.result("an answer ends", self.is_done())
        body = Stub.requests[-1]["body"]
        wanted = {"model": "demo-7b", "stream": True, "logprobs": True, "top_logprobs": 5}
        self.result(
            "request", wanted.items() <= body.items() and "temperature" not in body, str(body)
        )
        found = {
            s: self.browser.run(f"document.querySelectorAll('.body {s}').length")
            for s in (
                "h2",
                "strong",
                "em",
                "ol > li",
                "ol ul > li",
                "pre",
                "table td",
                "blockquote",
                "a",
                "img",
            )
        }
        expected = {
            "h2": 1,
            "strong": 1,
            "em": 1,
            "ol > li": 2,
            "ol ul > li": 2,
            "pre": 1,
            "table td": 2,
            "blockquote": 1,
            "a": 1,
            "img": 0,
        }
        self.result("markdown", found == expected, str(found))
        self.result("text of the model is never code", not self.browser.run("window.broken"))
        self.result(
            "reasoning is folded",
            "They want a short text." in self.text(".fold div")
            and not self.browser.run("document.querySelector('.fold').open")
            and self.text(".fold summary").startswith("Thought for"),
            self.text(".fold"),
        )
        stats = self.text(".stats")
        self.result(
            "counts and speed",
            bool(
                re.search(r"21 in \(16 cached\) · \d+ out · [\d.]+ tokens/s · first after", stats)
            ),
            stats,
        )
        live = self.text("#live")
        self.result("the answer is announced", live.startswith("Answer: ## Attention"), live[:60])
        kept = "JSON.parse(localStorage.getItem('megatron.chat')).chats[0].messages"
        self.result("the conversation is kept", self.browser.run(f"{kept}.length") == 2)
        self.picture("light")

    def tokens(self):
        self.click(".actions button", "Tokens")
        self.browser.run("document.getElementById('log').scrollTop = 0")
        time.sleep(0.2)  # a scroll hides the tooltip
        self.browser.hover(".token:nth-child(5)")
        self.result("alternatives on hover", self.browser.wait("!tip.hidden"))
        rows = self.text("#tip td")
        self.result(
            "probabilities",
            rows.startswith("␣asks|79.0 %|-0.236") and "␣maybe|18.9 %" in rows,
            rows,
        )
        shades = self.browser.run(
            "new Set([...document.querySelectorAll('.token')]"
            ".map(n => getComputedStyle(n).backgroundColor)).size"
        )
        self.result("tokens are coloured by probability", shades >= 8, f"{shades} shades")
        self.picture("tokens")
        self.browser.run("document.querySelector('.tokens').focus()")
        self.browser.key("ArrowRight")
        self.result(
            "arrow keys move through the tokens",
            self.browser.run("document.querySelectorAll('.token.at').length") == 1,
        )
        self.click(".actions button", "Tokens")

    def edit_and_regenerate(self):
        self.say("first words")
        self.is_done()
        self.browser.key("ArrowUp")
        self.result(
            "↑ edits the last message",
            self.browser.wait("document.querySelector('.editor textarea')"),
        )
        self.browser.run("document.querySelector('.editor textarea').select()")
        self.browser.type("other words")
        self.browser.key("Enter")
        self.is_done()
        sent = [m["content"] for m in Stub.requests[-1]["body"]["messages"]]
        self.result(
            "an edited message is sent in place of the old one",
            sent[-1] == "other words" and "first words" not in sent and len(sent) == 3,
            str(sent),
        )
        before = len(Stub.requests)
        self.click(".actions button", "Regenerate")
        self.browser.wait("running")
        self.is_done()
        self.result(
            "regenerate repeats the request",
            len(Stub.requests) == before + 1
            and Stub.requests[-1]["body"] == Stub.requests[-2]["body"],
        )
        self.result(
            "answer to the edited message",
            self.text(".message.assistant .body").endswith("You said: other words"),
            self.text(".message.assistant .body")[-40:],
        )

    def stop(self):
        self.say("Count slowly")
        self.browser.wait("document.querySelectorAll('.message')[5]?.textContent.includes('word3')")
        self.result(
            "the button stops while an answer streams",
            self.browser.run("send.getAttribute('aria-label')") == "Stop",
        )
        self.browser.key("Escape")
        self.result(
            "Esc stops", self.is_done() and "stopped" in self.text(".message:last-child .stats")
        )
        time.sleep(0.3)
        self.result("the server sees the disconnect", Stub.requests[-1].get("was_left", False))
        self.result("what was written stays", "word2" in self.text(".message:last-child .body"))

    def errors(self):
        self.say("be busy")
        self.is_done()
        shown = self.text(".failure")
        self.result(
            "429 is shown",
            "429" in shown and "The queue is full." in shown and "try again in 3 s" in shown,
            shown,
        )
        self.picture("error")
        self.say("be cut")
        self.is_done()
        self.result(
            "a cut stream is an error",
            "ended early" in self.text(".failure")
            and "half an" in self.text(".message:last-child .body"),
        )

    def tools(self):
        self.click("#new")
        self.say("What is the weather?")
        self.is_done()
        self.result(
            "a tool call is shown",
            "get_weather" in self.text(".call") and '"city": "Bergen"' in self.text(".call"),
            self.text(".call"),
        )
        self.result(
            "its result is asked for", "get_weather" in self.browser.run("input.placeholder")
        )
        self.say("7 °C and rain")
        self.is_done()
        last = Stub.requests[-1]["body"]["messages"]
        self.result(
            "the result goes to the model",
            last[-1] == {"role": "tool", "tool_call_id": "c1", "content": "7 °C and rain"}
            and last[-2]["tool_calls"][0]["function"]
            == {"name": "get_weather", "arguments": '{"city": "Bergen"}'},
            str(last),
        )

    def settings(self):
        self.click("#tune")
        for name, value in (
            ("system", "Be brief."),
            ("temperature", "0.5"),
            ("top_k", "20"),
            ("max_tokens", "64"),
            ("seed", "7"),
        ):
            self.browser.run(f"document.getElementById('{name}').focus()")
            self.browser.type(value)
        self.picture("settings")
        self.click("#new")
        self.say("hello")
        self.is_done()
        body = Stub.requests[-1]["body"]
        self.result(
            "settings are sent",
            {"temperature": 0.5, "top_k": 20, "max_tokens": 64, "seed": 7}.items() <= body.items()
            and body["messages"][0] == {"role": "system", "content": "Be brief."},
            str(body),
        )
        self.click("#close")

    def theme(self):
        page = "getComputedStyle(document.body).backgroundColor"
        light = self.browser.run(page)
        self.click("#theme")
        dark = self.browser.run(page)
        self.result(
            "the toggle makes it dark",
            light != dark and self.browser.run("theme.getAttribute('aria-pressed')") == "true",
            f"{light} {dark}",
        )
        self.click("#list li:last-child button:first-child")
        self.browser.run("document.getElementById('log').scrollTop = 0")
        self.picture("dark")
        self.browser.open(self.url)
        self.browser.wait("model.value")
        self.result(
            "the theme and conversations outlive a reload",
            self.browser.run(page) == dark and "Explain attention" in self.text("#list"),
            self.text("#list"),
        )
        self.click("#theme")
        self.browser.run("state.theme = undefined, applyTheme()")
        self.browser.dark(True)
        self.result("it follows the system", self.browser.run(page) == dark)
        self.browser.dark(False)

    def phone(self):
        self.browser.size(390, 844, mobile=True)
        self.browser.open(self.url)
        self.browser.wait("model.value")
        self.click("#list li:last-child button:first-child")
        wide = self.browser.run("document.documentElement.scrollWidth")
        self.result("fits a phone", wide <= 390, f"{wide} px")
        self.browser.run("document.getElementById('log').scrollTop = 0")
        self.picture("phone")
        self.click("#menu")
        self.result("the menu opens the list", self.browser.run("side.offsetWidth") > 100)
        self.picture("phone_list")
        self.click("#menu")
        self.click("#tune")
        self.picture("phone_settings")
        self.click("#close")
        self.browser.size(1280, 860)

    def other_servers(self):
        Stub.has_template = False
        self.browser.open(self.url)
        self.browser.wait("model.value")
        self.click("#new")
        self.say("Once upon a time")
        self.is_done()
        last = Stub.requests[-1]
        self.result(
            "without a chat template the text is continued",
            last["path"] == "/v1/completions"
            and last["body"]["prompt"].endswith("Once upon a time")
            and last["body"]["logprobs"] == 5
            and " and it was so." in self.text(".message.assistant .body"),
            str(last),
        )
        self.result("the page says so", "no chat template" in self.text("#hint"))
        Stub.has_template, Stub.key = True, "secret"
        self.browser.open(self.url)
        self.result("a missing key opens the settings", self.browser.wait("!settings.hidden"))
        self.browser.run("key.focus()")
        self.browser.type("secret")
        self.browser.run("key.blur()")
        self.result("the key is sent", self.browser.wait("model.value == 'demo-7b'"))
        Stub.key = None

    def loading_server(self):
        Stub.loading = 1
        self.browser.open(self.url)
        shown = self.browser.wait("document.getElementById('hint').textContent.includes('loading')")
        self.result("a server that loads is waited for", shown and self.browser.wait("model.value"))

    def accessible(self):
        unnamed = self.browser.run(
            "[...document.querySelectorAll('button, input, textarea, select')]"
            ".filter(n => !n.textContent.trim() && !n.getAttribute('aria-label')"
            " && !n.labels?.length).map(n => n.outerHTML).join()"
        )
        self.result("every control has a name", unnamed == "", unnamed)

    def clear(self):
        self.click("#clear")
        self.result("deleting asks first", self.browser.run("state.chats.length") > 0)
        self.click("#clear")
        kept = self.browser.run("JSON.parse(localStorage.getItem('megatron.chat')).chats.length")
        self.result("all conversations are deleted", kept == 0 and self.text("#list") == "")
        strange = [
            line
            for line in self.browser.console
            if "the server responded with a status" not in line
        ]
        self.result("the console is silent", not strange, "; ".join(strange))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--screenshots", type=Path, help="folder for pictures of the page")
    options = parser.parse_args()
    if not CHROMIUM:
        print(
            "skipped: chromium is not installed (apt-get install chromium, or name one in CHROMIUM)"
        )
        return 77
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = Browser()
    try:
        browser.size(1280, 860)
        browser.dark(False)
        checks = Checks(browser, f"http://127.0.0.1:{server.server_port}/", options.screenshots)
        for check in (
            checks.first_page,
            checks.markdown,
            checks.tokens,
            checks.edit_and_regenerate,
            checks.stop,
            checks.errors,
            checks.tools,
            checks.settings,
            checks.theme,
            checks.phone,
            checks.other_servers,
            checks.loading_server,
            checks.accessible,
            checks.clear,
        ):
            check()
        return 1 if checks.failures else 0
    finally:
        browser.close()
        server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
