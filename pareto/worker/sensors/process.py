"""One process of this host, watched from outside."""

from __future__ import annotations

import psutil


class WatchedProcess:
    """CPU time and memory of `pid` and its threads. Raises psutil.NoSuchProcess if there is no such process."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._last: tuple[float, float] | None = None

    def sample(self, at_s: float) -> tuple[float | None, int | None]:
        """Percent of one core since the previous sample, and resident bytes; None once it is gone.

        A zombie is gone too, and so is one whose number another process has now.
        """
        try:
            if not self._process.is_running():
                return None, None
            with self._process.oneshot():
                if self._process.status() == psutil.STATUS_ZOMBIE:
                    return None, None
                times = self._process.cpu_times()
                resident = int(self._process.memory_info().rss)
        except psutil.Error:
            return None, None
        used_s = times.user + times.system
        percent = None
        if self._last is not None and at_s > self._last[0]:
            percent = (used_s - self._last[1]) / (at_s - self._last[0]) * 100
        self._last = (at_s, used_s)
        return percent, resident
