"""A headless Chromium that a test drives: the DevTools protocol over a pipe, so that nothing beyond Python is needed."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]


def find_browser():
    """The path of a Chromium, or None. BERTH_BROWSER names one."""
    return next(filter(None, map(shutil.which, filter(None, [os.environ.get("BERTH_BROWSER"), *PROGRAMS]))), None)


class Browser:
    """One tab. `requests` are the addresses that pages asked for, `complaints` their errors and warnings, of all pages since the start."""

    def __init__(self, program, width=1400, height=900, timeout=60):
        self.timeout, self.next, self.events, self.rest = timeout, 0, [], b""
        self.requests, self.complaints = [], []
        self.profile = tempfile.TemporaryDirectory(prefix="berth-browser-", ignore_cleanup_errors=True)
        to_browser, self.out = os.pipe()
        self.input, from_browser = os.pipe()
        arguments = [
            program,
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-gpu",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            f"--user-data-dir={self.profile.name}",
            f"--window-size={width},{height}",
            "about:blank",
        ]

        def descriptors():
            # The protocol is spoken on 3 and 4, whatever stood there before.
            a, b = os.dup2(to_browser, 60), os.dup2(from_browser, 61)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.log = open(pathlib.Path(self.profile.name) / "log", "wb")
        self.process = subprocess.Popen(
            arguments,
            preexec_fn=descriptors,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.session = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.close(self.out)
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.input)
        self.log.close()
        self.profile.cleanup()

    def call(self, method, **parameters):
        self.next += 1
        message = {"id": self.next, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data) :]
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self.read(deadline, method)
            if answer.get("id") == self.next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def read(self, deadline, what):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.input], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser did not answer in {self.timeout} s: {what}")
            data = os.read(self.input, 1 << 20)
            if not data:
                raise RuntimeError(
                    "the browser is gone: " + pathlib.Path(self.log.name).read_text(errors="replace")[-2000:]
                )
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        method, about = event.get("method"), event.get("params", {})
        self.events.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([value.get("value") for value in about["args"]]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"])

    def resize(self, width, height, scale=1):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def dark(self, on):
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}],
        )

    def open(self, path):
        """Opens a file; returns the seconds until it has drawn."""
        begin = time.monotonic()
        self.events.clear()
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        while "Page.loadEventFired" not in self.events:
            self.note(self.read(begin + self.timeout, "load"))
        self.settle()
        return time.monotonic() - begin

    def settle(self):
        """Waits until what was asked for is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def run(self, script):
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.settle()

    def click(self, x, y, count=1):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=count)
        self.settle()

    def drag(self, x0, y0, x1, y1, **more):
        self.mouse("mousePressed", x0, y0, button="left", clickCount=1, **more)
        for part in (0.5, 1):
            self.mouse("mouseMoved", x0 + (x1 - x0) * part, y0 + (y1 - y0) * part, button="left", buttons=1, **more)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1, **more)
        self.settle()

    def wheel(self, x, y, by, **more):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=by, **more)
        self.settle()

    def press(self, key):
        code = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def picture(self, path, whole=False):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))
