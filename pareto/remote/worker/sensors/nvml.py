"""NVIDIA GPUs, by NVML through the optional package nvidia-ml-py:
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pareto.remote.worker.sensors.energy import Gauge, Meter, answering

_KINDS = ("GPU-", "MIG-")
"""How NVML's UUIDs begin; CUDA's own lack it."""

LEAST_WINDOW_S = 1.0
"""Energy and power move every 100 ms or so: of a shorter window, more than a tenth may be missing at either end."""


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


def gpu(uuid: str, nvml: Any) -> list[Gauge | Meter]:
    """The sensors of the GPU of that UUID: of the whole device, whoever uses it; without those that this device or
    driver does not support. CUDA numbers GPUs in another order than NVML, and fewer where some are hidden from it.
    `nvml` is what `load` gave."""

    def reader(call: Callable[[], float]) -> Callable[[], float | None]:
        def read() -> float | None:
            with suppress(nvml.NVMLError):
                return call()
            return None

        return read

    if nvml is None:
        return []
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(_KINDS) else f"GPU-{uuid}")
    except nvml.NVMLError:
        return []
    name = f"nvml {uuid}"
    calls: dict[str, Callable[[], float]] = {
        "gpu_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "gpu_memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "gpu_clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
    }
    gauges = (answering(Gauge(field, name, reader(call))) for field, call in calls.items())
    # Energy: since Volta. On newer GPUs the power is a mean over the last second.
    sources = (
        reader(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3),
        reader(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
    )
    energy, power = (read if read() is not None else None for read in sources)
    meters = [Meter(name, energy, power, least_window_s=LEAST_WINDOW_S)] if energy or power else []
    return [*(gauge for gauge in gauges if gauge), *meters]
