"""A user's own meter of energy, such as a smart plug: an object whose `read()` gives seconds and joules.

It is read by a thread of its own: one that hangs holds up nothing, and then its energy is not known. A class may say
how long it must be read (`least_window_s`) and what it does not see (`leaves_out`).
"""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import Any

from pareto.protocol.errors import UserError
from pareto.protocol.own import Own
from pareto.remote.worker.sensors.energy import Meter

PAUSE_S = 0.1
"""Between two readings."""
FIRST_S, LATE_S = 10.0, 5.0
"""Within how long the first one must be there, and for how long one holds."""
LEAST_WINDOW_S = 2.0
"""How long a meter must be read that does not say it."""


def meter(own: Own) -> Meter:
    """The meter that a user's file makes. Raises UserError for one that cannot be made, or read in time."""
    make = own.maker("meter")
    with own.guarded("()"):
        made = make()
        least_s, out = float(getattr(made, "least_window_s", LEAST_WINDOW_S)), getattr(made, "leaves_out", "")
    reader = Reader(made, own)
    if not reader.is_read.wait(FIRST_S):
        raise UserError(f"{own.typed}: {own.attribute}.read() takes longer than {FIRST_S:g} s")
    if reader.fault:
        raise UserError(reader.fault)
    return Meter(own.name, reader.energy_j, least_window_s=least_s, leaves_out=str(out))


class Reader:
    """Reads a user's meter until it fails, which is said on stderr. fault: why, in words."""

    def __init__(self, made: Any, own: Own) -> None:
        self._made, self._own = made, own
        self._readings: list[tuple[float, float, float]] = []
        """The last two: seconds by the meter's own clock, joules, and when they came, on `time.monotonic`."""
        self.is_read, self.fault = threading.Event(), ""
        threading.Thread(target=self._run, name="own meter", daemon=True).start()

    def energy_j(self) -> float | None:
        """Joules by now: of the last reading, and what the power between the last two has made since. None: the meter
        has failed, or has not answered for long."""
        readings = self._readings
        _, energy_j, came_s = readings[-1]
        if self.fault or (since_s := time.monotonic() - came_s) > LATE_S:
            return None
        (first_s, first_j, _), (last_s, last_j, _) = readings[0], readings[-1]
        return energy_j + since_s * (last_j - first_j) / (last_s - first_s) if last_s > first_s else energy_j

    def _run(self) -> None:
        try:
            with self._own.guarded(".read()"):
                while True:
                    seconds, joules = map(float, self._made.read())
                    self._add(seconds, joules)
                    self.is_read.set()
                    time.sleep(PAUSE_S)
        except UserError as fault:
            self.fault = str(fault)
            print(self.fault, file=sys.stderr)
        self.is_read.set()

    def _add(self, seconds: float, joules: float) -> None:
        last_s, last_j, _ = self._readings[-1] if self._readings else (-math.inf, -math.inf, 0.0)
        if not (math.isfinite(seconds) and math.isfinite(joules)) or seconds < last_s or joules < last_j:
            raise ValueError(f"{seconds:g} s and {joules:g} J after {last_s:g} s and {last_j:g} J")
        if seconds > last_s:  # else it has not counted anew
            self._readings = [*self._readings[-1:], (seconds, joules, time.monotonic())]
