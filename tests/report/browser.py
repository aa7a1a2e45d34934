"""A headless Chromium, driven by the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium")


class Browser:
    """A browser with one page.

    Attributes:
        requests: The addresses that the page asked for since it was opened, its own file among them.
        complaints: What it wrote to the console, and its errors.
    """

    def __init__(self, home: Path) -> None:
        (read, ours), (theirs, write) = os.pipe(), os.pipe()
        # The protocol's pipes are the descriptors 3 and 4.
        launch = "import os, sys; os.dup2({}, 3); os.dup2({}, 4); os.execv(sys.argv[1], sys.argv[1:])"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={home}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", launch.format(read, write), str(CHROMIUM), *options],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._to, self._from, self._sent, self._rest = ours, theirs, 0, b""
        self._session: dict[str, str] = {}
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self._call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = {}
        self._call("Browser.close")
        self._process.wait(20)
        os.close(self._to)
        os.close(self._from)

    def open(self, file: Path, width: int, height: int = 900, dark: bool = False) -> None:
        """Open a page at this width of the window, and wait until it has loaded and drawn itself."""
        self.requests, self.complaints = [], []
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=file.as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass
        self.ask("new Promise(done => requestAnimationFrame(() => setTimeout(done, 100)))")

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page, once it is there."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press_enter(self) -> None:
        """Press the key on what has the focus."""
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            self._call("Input.dispatchKeyEvent", type=kind, **key)

    def save_screenshot(self, path: Path, last: str = "body") -> None:
        """Save a picture of the page, from its top to the end of the last element to be seen."""
        width, height = self.ask(f"[innerWidth, document.querySelector('{last}').getBoundingClientRect().bottom]")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        picture = self._call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(picture))

    def save_pdf(self, path: Path) -> None:
        """Print the page."""
        path.write_bytes(base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"]))

    def _call(self, method: str, **arguments: Any) -> Any:
        self._sent += 1
        call = {"id": self._sent, "method": method, "params": arguments, **self._session}
        os.write(self._to, json.dumps(call).encode() + b"\0")
        while (answer := self._message()).get("id") != self._sent:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        told = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.complaints.append(json.dumps(told))
        return message
