"""A headless Chromium, driven over a pipe by its developer protocol; needs nothing but the program."""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
PROGRAM = next((found for name in NAMES if (found := shutil.which(name))), None)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu-sandbox", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
    "--disable-dev-shm-usage", "--remote-debugging-pipe", "--window-size=900,640",
)  # fmt: skip
PATIENCE = 120.0  # s, on a machine that does much else


class Page:
    """One page: what it complained about, what scripts in it say, how it looks."""

    def __init__(self, read, write):
        self.read, self.write, self.rest, self.count = read, write, b"", 0
        self.session, self.complaints, self.loaded = None, [], False

    def call(self, method, **params):
        self.count += 1
        number, message = self.count, {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def next(self):
        """The next message; notes events of the page."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(deadline - time.monotonic(), 0.0))
            assert ready, "the browser does not answer"
            chunk = os.read(self.read, 1 << 20)
            assert chunk, "the browser has ended"
            self.rest += chunk
        raw, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(raw)
        kind, params = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"])
        if kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(params["args"])
        if kind == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"])
        self.loaded |= kind == "Page.loadEventFired"
        return message

    def open(self, path):
        self.loaded = False
        self.call("Page.navigate", url=Path(path).absolute().as_uri())
        while not self.loaded:
            self.next()

    def evaluate(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def painted(self):
        """Wait for two pictures of the page."""
        self.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")

    def screenshot(self, path=None):
        png = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if path is not None:
            Path(path).write_bytes(png)
        return png


@contextlib.contextmanager
def page():
    """A page of a browser that ends with the block."""
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Numbers that neither of the pipes has: each is moved to 3 and 4 from there.
        read, write = os.dup2(theirs_in, 100), os.dup2(theirs_out, 101)
        nothing = os.open(os.devnull, os.O_RDWR)
        moves = [(os.POSIX_SPAWN_DUP2, a, b) for a, b in ((nothing, 1), (nothing, 2), (read, 3), (write, 4))]
        arguments = [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        child = os.posix_spawn(PROGRAM, arguments, os.environ, file_actions=moves, setpgroup=0)
        for end in (theirs_in, theirs_out, read, write, nothing):
            os.close(end)
        try:
            found = Page(ours_in, ours_out)
            targets = found.call("Target.getTargets")["targetInfos"]
            (target, *_) = [each["targetId"] for each in targets if each["type"] == "page"]
            session = found.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            found.session = session
            for domain in ("Page", "Runtime", "Log"):
                found.call(f"{domain}.enable")
            yield found
        finally:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(ours_in)
            os.close(ours_out)
