"""`python -m pareto.remote.worker.monitor`: samples this device while a worker runs. It needs no torch. A process of
its own, so that sampling never holds the lock of the worker's interpreter."""

from __future__ import annotations

import argparse
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import psutil

from pareto.protocol import host_messages, messages
from pareto.protocol.host_messages import SensorSample
from pareto.protocol.jsonlines import Refused, serve
from pareto.protocol.own import Own
from pareto.remote.worker.sensors import hwmon, nvml, own_meter, processor, raspberry, throttled
from pareto.remote.worker.sensors.energy import Gauge, Meter, rapl_meters

KEPT = 50_000
"""Samples that wait to be collected, at most (some 20 MB): the oldest give way."""


class Instruments:
    """The device's sensors, and a process. gpu: a UUID. sysfs: the folder with `sys`. meter: a user's own, which is of
    all that draws power. Raises psutil.NoSuchProcess, UserError."""

    def __init__(self, pid: int, gpu: str | None, sysfs: Path, meter: Own | None = None) -> None:
        self._process = processor.WatchedProcess(pid)
        of_gpu = nvml.gpu(gpu, nvml.load()) if gpu is not None else []
        found = [processor.temperature(sysfs), processor.frequency(sysfs), *of_gpu]
        found += [raspberry.throttling(), throttled.processor(sysfs)]
        gauges = [each for each in found if isinstance(each, Gauge)]
        bits = [each for each in gauges if each.field == throttled.FIELD]
        self._gauges = [each for each in gauges if each not in bits] + throttled.together(bits)
        # The slow one last: counters are to be read at the sample's time, not after it.
        parts = (*rapl_meters(sysfs), *of_gpu, raspberry.rails())
        meters = [each for each in parts if isinstance(each, Meter)]
        whole = own_meter.meter(meter) if meter else hwmon.board(sysfs)
        whole = whole or (None if meters else hwmon.only(sysfs))
        self._meters = [whole] if whole else meters

    @property
    def sensors(self) -> host_messages.Sensors:
        """This device's sensors, but for what any kernel tells of cores."""
        energy = " + ".join(meter.name for meter in self._meters)
        by_field = {"cpu_percent": "psutil", "rss_bytes": "psutil"}
        by_field |= {gauge.field: gauge.source for gauge in self._gauges}
        by_field |= {"energy_j": energy, "power_w": energy} if energy else {}
        least_s = max((meter.least_window_s for meter in self._meters), default=0.0)
        out = "; ".join(f"{meter.name}: {meter.leaves_out}" for meter in self._meters if meter.leaves_out)
        return host_messages.Sensors(by_field, least_s, out)

    def sample(self) -> SensorSample:
        at_s = time.monotonic()
        of_process = self._process.sample(at_s)
        metered = [meter.sample(at_s) for meter in self._meters]
        values: dict[str, Any] = {gauge.field: gauge.read() for gauge in self._gauges}
        twice = [each for each in metered if each.integrated_j is not None]
        values |= {of: _sum(getattr(each, of) for each in metered) for of in ("energy_j", "power_w")}
        values |= {"counted_j": _sum(each.energy_j for each in twice)}
        values |= {"integrated_j": _sum(each.integrated_j for each in twice)}
        return SensorSample(at_s, **of_process, **values)


class Sampler:
    """Calls `take` now and every `interval_s` after until `stop`. `take` is never called by two threads at once."""

    def __init__(self, take: Callable[[], SensorSample], interval_s: float, kept: int = KEPT) -> None:
        self._begun_s, self._own_cpu_s = time.monotonic(), _own_cpu_s()
        self._take, self._interval_s = take, interval_s
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._fault: Exception | None = None
        self._samples: deque[SensorSample] = deque([take()], maxlen=kept)
        self._taken = 1
        self._late_s: deque[float] = deque(maxlen=kept)
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait until no sample is being taken any more."""
        self._stopping.set()
        self._thread.join()

    def waiting(self) -> list[SensorSample]:
        """The samples that `collect` would give. Raises RuntimeError if sampling has failed."""
        if self._fault is not None:
            raise RuntimeError("sampling has ended") from self._fault
        with self._lock:
            return list(self._samples)

    def collect(self) -> list[SensorSample]:
        """The samples since the last call and the last one of that call, so that no interval is lost between. One is
        taken now: what has just ended lies between two samples as well."""
        self.waiting()  # raises
        self._sample()
        with self._lock:
            collected = list(self._samples)
            self._samples = deque(collected[-1:], maxlen=self._samples.maxlen)
            return collected

    def cost(self) -> host_messages.SamplingCost:
        """The cost of sampling since its beginning."""
        cpu_s, lasted_s = _own_cpu_s() - self._own_cpu_s, time.monotonic() - self._begun_s
        with self._lock:
            late = sorted(self._late_s)
        late_p99_s = late[math.ceil(0.99 * len(late)) - 1] if late else None
        return host_messages.SamplingCost(cpu_s / lasted_s * 100, self._taken, late_p99_s)

    def _sample(self) -> None:
        with self._lock:
            self._samples.append(self._take())
            self._taken += 1

    def _run(self) -> None:
        try:
            due_s = time.monotonic() + self._interval_s
            while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
                late_s = time.monotonic() - due_s
                self._sample()
                with self._lock:
                    self._late_s.append(late_s)
                # Times that have passed are left out: samples in a burst would tell nothing new.
                due_s += self._interval_s * (1 + max(0, int(late_s / self._interval_s)))
        except Exception as fault:
            self._fault = fault
            raise


class Monitor:
    """Sampling of this device. Methods with a request answer it."""

    def __init__(self, sysfs: Path) -> None:
        self._sysfs = sysfs
        self._sampler: Sampler | None = None

    def begin(self, request: host_messages.BeginSampling) -> host_messages.Sensors:
        self.stop()
        try:
            instruments = Instruments(request.pid, request.gpu, self._sysfs, request.meter)
        except psutil.NoSuchProcess:
            raise Refused(f"no process {request.pid} to watch") from None
        self._sampler = Sampler(instruments.sample, request.interval_s)
        return instruments.sensors

    def latest(self, request: host_messages.GetLatestSample) -> SensorSample | None:
        return self._sampler.waiting()[-1] if self._sampler is not None else None

    def collect(self, request: host_messages.CollectSamples) -> dict[str, list[Any]]:
        samples = self.sampler().collect()
        return {one.name: [getattr(each, one.name) for each in samples] for one in fields(SensorSample)}

    def idle(self, request: host_messages.MeasureIdle) -> float | None:
        sampler = self.sampler()
        from_s = time.monotonic()
        time.sleep(request.seconds)
        samples = [sample for sample in sampler.waiting() if sample.at_s >= from_s]
        energies = [sample.energy_j for sample in samples if sample.energy_j is not None]
        if len(energies) < max(2, len(samples)):
            return None
        # Energy over time: for a counter that is exact, whatever happens between two samples.
        return (energies[-1] - energies[0]) / (samples[-1].at_s - samples[0].at_s)

    def stop(self) -> None:
        """Stop sampling, also at the end of the program, so that no `vcgencmd` outlives it."""
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()

    def sampler(self) -> Sampler:
        if self._sampler is None:
            raise Refused("nothing is watched yet")
        return self._sampler


def _sum(parts: Iterable[float | None]) -> float | None:
    """The sum; None without parts, and where one is missing: the rest would look like less energy, not like a gap."""
    known = list(parts)
    return sum(part for part in known if part is not None) if known and None not in known else None


def _own_cpu_s() -> float:
    return sum(os.times()[:4])  # its children's too


def main() -> None:
    arguments = argparse.ArgumentParser(prog="pareto.remote.worker.monitor")
    arguments.add_argument("--sysfs", type=Path, default=Path("/"), help=argparse.SUPPRESS)
    monitor = Monitor(arguments.parse_args().sysfs)
    answers: messages.Answers = {
        host_messages.BeginSampling: monitor.begin,
        host_messages.GetLatestSample: monitor.latest,
        host_messages.CollectSamples: monitor.collect,
        host_messages.MeasureIdle: monitor.idle,
        host_messages.GetSamplingCost: lambda _: monitor.sampler().cost(),
    }
    serve(messages.handlers(answers), at_end=monitor.stop)


if __name__ == "__main__":
    main()
