"""A thread that computes in pure Python: what preprocessing or logging beside a transport does to it."""

from __future__ import annotations

import threading
import time

PERIOD_S = 0.01


class Busy:
    """Holds the interpreter's lock for a share of the time, whenever it is let: 0 never, 1 always."""

    def __init__(self) -> None:
        self._share = 0.0
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="busy", daemon=True).start()

    def set(self, share: float) -> None:
        with self._changed:
            self._share = share
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._share:
                    self._changed.wait()
                share = self._share
            until = time.perf_counter() + PERIOD_S * share
            while self._share == share and time.perf_counter() < until:
                sum(range(100))
            if share < 1:
                time.sleep(PERIOD_S * (1 - share))
