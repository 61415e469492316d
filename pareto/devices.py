"""The monitors of a run: one beside each worker, sampling what the device's sensors tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pareto import device_series
from pareto.hosts.session import Session
from pareto.hosts.testbed import Testbed

START_TIMEOUT_S = 60.0
IDLE_S = 3.0
"""How long idle power is measured, once a run."""
_ENERGY = frozenset(("energy_j", "power_w"))
"""What two hosts that are one machine cannot tell apart."""

Series = Mapping[str, list[Any]]


class Devices:
    """Its methods raise SessionError, SessionLost, TimeoutError or way.Unreachable."""

    def __init__(self, testbed: Testbed, interval_s: float) -> None:
        self._testbed = testbed
        self._interval_s = interval_s
        self._sessions: dict[str, Session] = {}
        self._sensors: dict[str, dict[str, str]] = {}
        self.idle_power_w: dict[str, float | None] = {}
        """By role, as `facts` measured it."""

    def start(self, workers: Mapping[str, Mapping[str, Any]]) -> None:
        """Watch the workers, and the GPUs that they use; `workers` is what each told of itself, by role."""
        for role, remote in self._testbed.remotes.items():
            session = remote.start("pareto.worker.monitor")
            self._sessions[role] = session
            self._testbed.heartbeat.add(session)
        for role, worker in workers.items():
            told = self._sessions[role].request(
                "begin",
                START_TIMEOUT_S,
                pid=worker["pid"],
                interval_s=self._interval_s,
                gpu=(worker.get("cuda") or {}).get("uuid"),
            )
            self._sensors[role] = {
                field: source for field, source in told["sensors"].items() if self._tells(field)
            }

    def close(self) -> None:
        for session in self._sessions.values():
            self._testbed.heartbeat.remove(session)
            session.close()
        self._sessions.clear()

    def facts(self) -> dict[str, dict[str, Any]]:
        """By role: which sensor each figure is from, and the power while nothing is computed, in watts."""
        idle = {
            role: session.send("idle", seconds=IDLE_S)
            for role, session in self._sessions.items()
            if not _ENERGY.isdisjoint(self._sensors[role])
        }
        watts = {
            role: self._sessions[role].wait(number, START_TIMEOUT_S)["power_w"]
            for role, number in idle.items()
        }
        self.idle_power_w = watts
        return {
            role: {"sensors": sensors, "idle_power_w": watts.get(role)}
            for role, sensors in self._sensors.items()
        }

    def latest(self) -> dict[str, dict[str, Any]]:
        """The newest sample of each host."""
        asked = {role: session.send("latest") for role, session in self._sessions.items()}
        samples = {role: self._sessions[role].wait(number) for role, number in asked.items()}
        return {
            role: {field: value for field, value in sample.items() if self._tells(field)}
            for role, sample in samples.items()
            if sample
        }

    def collect(self) -> dict[str, Series]:
        """By role: the samples since the last time, each field a column."""
        asked = {role: session.send("collect") for role, session in self._sessions.items()}
        told = {role: self._sessions[role].wait(number)["columns"] for role, number in asked.items()}
        return {
            role: {
                field: values if self._tells(field) else [None] * len(values)
                for field, values in columns.items()
            }
            for role, columns in told.items()
        }

    def cost(self) -> dict[str, dict[str, Any]]:
        """By role: what sampling itself took."""
        return {role: session.request("cost") for role, session in self._sessions.items()}

    def _tells(self, field: str) -> bool:
        return not (self._testbed.is_local and field in _ENERGY)


def columns(role: str, series: Series | None, told: Mapping[str, Any], batch_size: int) -> dict[str, Any]:
    """A host's columns of trials.csv, from its samples and its worker's own report of the trial."""
    row = {f"{role}_{name}": told.get(name) for name in ("peak_rss_bytes", "gpu_s")}
    window = told.get("trial_window")
    if series is None or window is None:
        return row
    found = device_series.summary(series, window)
    bits = found["throttled"]
    row |= {
        f"{role}_{name}": found[name]
        for name in ("temperature_c", "frequency_hz", "gpu_percent", "gpu_memory_bytes")
    }
    row[f"{role}_throttled"] = None if bits is None else hex(int(bits))
    shares = {
        "steal": device_series.share(series, "steal_s", window),
        "others": None if _held_back(series, window) else device_series.share(series, "others_s", window),
        "wait": device_series.share(series, "waited_s", window),
    }
    row |= {f"{role}_{name}_percent": share and 100 * share for name, share in shares.items()}
    steady, requests = told.get("throughput_window"), told.get("throughput_window_requests")
    if steady is not None and requests:
        row[f"{role}_core_percent"] = _core_percent(series, steady)
        images = requests * batch_size
        row[f"{role}_energy_j"] = whole_j = device_series.energy_per_image(series, steady, images)
        if whole_j is not None and (idle_w := told.get("idle_power_w")) is not None:
            row[f"{role}_active_energy_j"] = whole_j - idle_w * (steady[1] - steady[0]) / images
    return row


def _core_percent(series: Series, window: tuple[float, float]) -> float | None:
    """How much of the time a host's cores were not to be had: busy, or held back by a quota that was used up."""
    busy = device_series.share(series, "busy_s", window)
    if busy is None:
        return None
    if held_back := _held_back(series, window):
        busy -= device_series.share(series, "others_s", window) or 0.0
    return min(100.0, 100 * (busy + held_back))


def _held_back(series: Series, window: tuple[float, float]) -> float:
    """The share of a window in which a CPU quota held the host back.

    Where it did, what others had of the cores is not known: the kernel counts that by looking at every tick, its own
    programs' time exactly, and a quota begins anew in step with the ticks.
    """
    return device_series.share(series, "throttled_s", window) or 0.0


def throttling(role: str, series: Series | None, told: Mapping[str, Any]) -> str:
    """Why a host's figures are not what it can do, if they are not."""
    window = told.get("trial_window")
    if series is None or window is None:
        return ""
    words = device_series.throttled_now(int(device_series.summary(series, window)["throttled"] or 0))
    return f"the {role} throttled: {', '.join(words)}" if words else ""


def within(series: Series, window: tuple[float, float], margin_s: float = 1.0) -> dict[str, list[Any]]:
    """The samples of a window and a second around it, `at_s` from its beginning."""
    begin, end = window
    kept = [i for i, at in enumerate(series["at_s"]) if begin - margin_s <= at <= end + margin_s]
    cut = {field: [values[i] for i in kept] for field, values in series.items()}
    return {**cut, "at_s": [at - begin for at in cut["at_s"]]}
