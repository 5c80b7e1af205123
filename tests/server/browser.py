"""Drives a headless Chromium over the DevTools protocol, with Python's standard library alone.

Chromium reads commands from its descriptor 3 and writes answers and events to 4, each ended by a
zero byte (--remote-debugging-pipe)."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """A page in a Chromium of its own, whose profile is empty."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_chromium, self.write_end = os.pipe()
        self.read_end, from_chromium = os.pipe()
        # Both ends are moved out of the way first, so that neither overwrites the other.
        ends = [os.dup(to_chromium), os.dup(from_chromium)]
        high = [50, 51]
        for end, number in zip(ends, high, strict=True):
            os.dup2(end, number, inheritable=True)
        script = 'exec "$0" "$@" 3<&50 4>&51 50<&- 51>&-'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--no-first-run", "--hide-scrollbars", f"--user-data-dir={self.profile.name}"]
        self.process = subprocess.Popen(
            ["bash", "-c", script, CHROMIUM, *flags, "--remote-debugging-pipe", "about:blank"],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in [to_chromium, from_chromium, *ends, *high]:
            os.close(end)
        self.buffer, self.number, self.session, self.console = b"", 0, None, []
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(info["targetId"] for info in targets if info["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(domain + ".enable")

    def receive(self, seconds):
        """The next message, which must come within so many seconds."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            if not select.select([self.read_end], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium says nothing")
            part = os.read(self.read_end, 1 << 20)
            if not part:
                raise ConnectionError("Chromium ended")
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def send(self, method, **parameters):
        """The result of a command. Console messages and exceptions that come before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(60)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.console.append(json.dumps(answer["params"])[:600])

    def run(self, script):
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {json.dumps(result['exceptionDetails'])[:600]}")
        return result["result"].get("value")

    def wait(self, condition, seconds=20):
        """Whether the JavaScript condition becomes true in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.run(f"Boolean({condition})"):
                return True
            time.sleep(0.03)
        return False

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait(
            f"location.href.startsWith({json.dumps(url)}) && document.readyState == 'complete'"
        )

    def size(self, width, height, mobile=False):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )

    def dark(self, is_dark):
        """Sets what the system prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def type(self, text):
        self.send("Input.insertText", text=text)

    def key(self, key, modifiers=0):
        code = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowRight": 39, "ArrowLeft": 37}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.send("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def hover(self, selector):
        node = f"document.querySelector({json.dumps(selector)})"
        box = json.loads(self.run(f"JSON.stringify({node}.getBoundingClientRect())"))
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path):
        data = self.send("Page.captureScreenshot", format="png")["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()
