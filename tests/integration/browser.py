"""Debian's Chromium without a screen, driven over its DevTools pipe (Chrome DevTools Protocol): no driver, no port."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_S = 60
"""For one answer: a busy machine is slow to start a browser."""
_FREE_FD = 10


class Page:
    """One tab. `requests`: the address of everything that it asked for; `complaints`: console errors, exceptions."""

    def __init__(self, read: int, write: int) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._read, self._write, self._pending = read, write, b""
        self._count, self._events = 0, list[dict[str, Any]]()
        self._session = ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers to one method of the protocol."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self._count:
                assert "error" not in got, f"{method}: {got['error']}"
                return got["result"]
            self._note(got)

    def open(self, path: Path, width: int = 1280, height: int = 900, *, scheme: str = "light") -> None:
        """Load a file in a window of that size; `scheme`: which colours the reader prefers."""
        self.resize(width, height)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._events.clear()
        self.ask("Page.navigate", url=path.resolve().as_uri())
        self._until("Page.loadEventFired")

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.ask("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)

    def js(self, expression: str) -> Any:
        """The value of an expression, after what it awaits and the next frame."""
        frame = "await new Promise(requestAnimationFrame)"
        return self.value(f"(async () => {{ const value = await ({expression}); {frame}; return value; }})()")

    def value(self, expression: str) -> Any:
        """The same at once; also where the page may not run scripts."""
        got = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def place(self, selector: str) -> tuple[float, float]:
        """The middle of the first element that matches, scrolled into view."""
        find = f"document.querySelector({json.dumps(selector)})"
        box = self.js(
            f"(() => {{ const it = {find}; it.scrollIntoView({{block: 'center'}}); "
            "const box = it.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        return float(box[0]), float(box[1])

    def click(self, selector: str) -> None:
        x, y = self.place(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        text = {"Enter": "\r"}.get(key, "")
        code = {"Enter": 13, "ArrowLeft": 37}[key]
        for kind in ("keyDown", "keyUp"):
            down = {"text": text} if text and kind == "keyDown" else {}
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **down
            )

    def text(self, selector: str) -> str:
        return str(self.js(f"document.querySelector({json.dumps(selector)}).innerText"))

    def pdf(self, file: Path) -> Path:
        file.write_bytes(base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True)["data"]))
        return file

    def _until(self, event: str) -> None:
        while not any(got["method"] == event for got in self._events):
            self._note(self._next())
        self._events.clear()

    def _note(self, got: dict[str, Any]) -> None:
        method, told = got.get("method", ""), got.get("params", {})
        self._events.append({"method": method})
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(
                told["exceptionDetails"].get("exception", {}).get("description", "exception")
            )
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([argument.get("value") for argument in told["args"]]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            assert select.select([self._read], [], [], PATIENCE_S)[0], "the browser does not answer"
            got = os.read(self._read, 1 << 20)
            assert got, "the browser has ended"
            self._pending += got
        message, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(message))


@contextlib.contextmanager
def browser(home: Path) -> Iterator[Page]:
    """A browser of its own, with its profile in `home`; it ends with the block."""
    assert CHROMIUM is not None
    ours_read, theirs_write = os.pipe()
    theirs_read, ours_write = os.pipe()
    # The browser reads from 3 and writes to 4; both may be in use here.
    theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, _FREE_FD) for fd in (theirs_read, theirs_write)]
    os.close(theirs_read)
    os.close(theirs_write)

    def hand_over() -> None:
        os.dup2(theirs[0], 3)
        os.dup2(theirs[1], 4)

    options = (
        f"--headless=new --remote-debugging-pipe --user-data-dir={home} --no-first-run --disable-gpu "
        "--disable-background-networking --hide-scrollbars"
    )
    argv = [CHROMIUM, *options.split(), *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    environment, nowhere = os.environ | {"HOME": str(home)}, subprocess.DEVNULL
    process = subprocess.Popen(
        argv, preexec_fn=hand_over, pass_fds=(3, 4), stdout=nowhere, stderr=nowhere, env=environment
    )
    for fd in theirs:
        os.close(fd)
    try:
        yield Page(ours_read, ours_write)
    finally:
        os.close(ours_write)  # it ends when nobody can ask any more
        os.close(ours_read)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


CONTRAST = """
(() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => parts(colour).slice(0, 3).map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if ((parts(colour)[3] ?? 1) > 0) return colour;
    }
    return getComputedStyle(document.documentElement).backgroundColor;
  };
  const ratio = (one, other) => {
    const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const worst = {};
  const note = (kind, front, back, element) => {
    const found = ratio(front, back);
    if (!(kind in worst) || found < worst[kind][0]) worst[kind] = [found, element.outerHTML.slice(0, 80)];
  };
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    if (!own || !element.getClientRects().length || element.closest("script, style, noscript")) continue;
    const style = getComputedStyle(element);
    note("text", element instanceof SVGElement ? style.fill : style.color, behind(element), element);
  }
  for (const element of document.querySelectorAll("use, .stairs")) {
    const stroke = getComputedStyle(element).stroke;
    if (element.getClientRects().length) note("marks", stroke, behind(element.closest("figure")), element);
  }
  return worst;
})()
"""


def worst_contrast(tab: Page) -> dict[str, tuple[float, str]]:
    """The least contrast (1 to 21, as in WCAG 2.2) of `text` and of `marks`, and the element that has it."""
    return {kind: (ratio, element) for kind, (ratio, element) in tab.js(CONTRAST).items()}
