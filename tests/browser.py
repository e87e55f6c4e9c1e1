"""A headless Chromium, told what to do over a pipe (the Chrome DevTools Protocol): nothing to install beside it."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 120.0  # until a state that does not come is a failure; nothing waits longer than it takes
OPTIONS = (
    "--headless",
    "--no-sandbox",  # which root cannot have; the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--window-size=1000,900",
)


def executable() -> str | None:
    """The browser of this machine; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page in a browser of its own; what goes wrong in it and what it asks the network for is kept."""

    def __init__(self, program: str, profile: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def connect() -> None:  # the browser reads commands from 3 and answers on 4
            commands, answers = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out))
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = [program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(command, close_fds=False, preexec_fn=connect, **quiet)
        os.close(theirs_in)
        os.close(theirs_out)
        self._unread = b""
        self._last = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.tell(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    # ---- the protocol

    def tell(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._out, content) :]
        while True:
            answer = self._message()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _message(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            more = os.read(self._in, 2**20) if ready else b""
            assert more, f"the browser says nothing more (exit status {self._process.poll()})"
            self._unread += more
        first, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, details: dict[str, Any]) -> None:
        self._events.append(event)
        if event == "Runtime.exceptionThrown":
            self.errors.append(str(details["exceptionDetails"]))
        elif event == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.errors.append(details["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])

    # ---- what a reader does

    def open(self, page: Path | str) -> None:
        """Opens a file or an address and waits until it is loaded."""
        self.errors.clear()
        self.requests.clear()
        self._events.clear()
        self.tell("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        while "Page.loadEventFired" not in self._events:
            self._message()

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives on the page."""
        answer = self.tell("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """What a reader sees in an element."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def rows(self, selector: str) -> list[list[str]]:
        """The texts of a table's cells, row by row."""
        cells = "[...row.cells].map(cell => cell.innerText.trim())"
        return list(self.value(f"[...{_query(selector)}.rows].map(row => {cells})"))

    def wait_for(self, expression: str) -> None:
        """Waits until an expression is true on the page."""
        until = time.monotonic() + PATIENCE_S
        while not self.value(expression):
            assert time.monotonic() < until, f"never true: {expression}"
            time.sleep(0.02)

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element that is scrolled into view."""
        shown = f"(e => (e.scrollIntoView({{block: 'center'}}), e.getBoundingClientRect()))({_query(selector)})"
        box = self.value(f"(b => [b.left, b.top, b.width, b.height])({shown})")
        return tuple(box)  # type: ignore[return-value]

    def mouse(self, event: str, x: float, y: float, clicks: int = 0, held: bool = False) -> None:
        """Moves, presses or releases the mouse (``mouseMoved``, ``mousePressed``, ``mouseReleased``)."""
        button = "left" if clicks or held else "none"
        self.tell("Input.dispatchMouseEvent", type=event, x=x, y=y, button=button, clickCount=clicks, buttons=int(held))

    def click(self, selector: str, times: int = 1) -> None:
        """Clicks into the middle of an element."""
        left, top, width, height = self.box(selector)
        for count in range(1, times + 1):
            self.mouse("mousePressed", left + width / 2, top + height / 2, count)
            self.mouse("mouseReleased", left + width / 2, top + height / 2, count)

    def write(self, selector: str, text: str) -> None:
        """Types into a field, in place of what it holds."""
        self.value(f"(e => (e.focus(), e.select()))({_query(selector)})")
        if text:
            self.tell("Input.insertText", text=text)
        else:
            for kind in ("keyDown", "keyUp"):
                self.tell("Input.dispatchKeyEvent", type=kind, key="Delete", code="Delete", windowsVirtualKeyCode=46)

    def press(self, key: str) -> None:
        """Presses a key that writes a character."""
        self.tell("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        self.tell("Input.dispatchKeyEvent", type="keyUp", key=key)


def _query(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)})"
