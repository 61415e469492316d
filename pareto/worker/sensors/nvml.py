"""NVIDIA GPUs, by NVML through the optional package nvidia-ml-py.

https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pareto.worker.sensors.energy import CounterMeter, Gauge, Meter, PowerMeter, answering

_KINDS = ("GPU-", "MIG-")
"""How NVML's UUIDs begin; CUDA's own lack it."""


@dataclass(frozen=True)
class Gpu:
    """What one GPU can measure: of the whole device, whoever uses it."""

    gauges: tuple[Gauge, ...] = ()
    meter: Meter | None = None


def load() -> Any:
    """The module pynvml, initialised; None without it or without a driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def gpu(uuid: str, nvml: Any) -> Gpu:
    """The GPU of that UUID. CUDA numbers GPUs in another order than NVML, and fewer where some are hidden from it.

    `nvml` is what `load` gave. What this device or driver does not support is left out.
    """

    def reader(call: Callable[[], float]) -> Callable[[], float | None]:
        def read() -> float | None:
            try:
                return call()
            except nvml.NVMLError:
                return None

        return read

    if nvml is None:
        return Gpu()
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(_KINDS) else f"GPU-{uuid}")
    except nvml.NVMLError:
        return Gpu()
    name = f"nvml {uuid}"
    gauges = (
        Gauge("gpu_percent", name, reader(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        Gauge("gpu_memory_bytes", name, reader(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)),
        Gauge(
            "gpu_clock_hz",
            name,
            reader(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
        ),
    )
    return Gpu(
        tuple(gauge for gauge in gauges if answering(gauge)),
        _meter(
            name,
            reader(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3),
            reader(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
        ),
    )


def _meter(
    name: str, read_energy_j: Callable[[], float | None], read_power_w: Callable[[], float | None]
) -> Meter | None:
    """The counter where there is one (since Volta): on newer GPUs the power is a mean over the last second."""
    power = read_power_w if read_power_w() is not None else None
    if read_energy_j() is not None:
        return CounterMeter(name, read_energy_j, power)
    return None if power is None else PowerMeter(name, power)
