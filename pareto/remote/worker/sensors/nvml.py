"""NVIDIA GPUs, by NVML through the optional package nvidia-ml-py:
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pareto.remote.worker.sensors.energy import Gauge, Meter, answering
from pareto.remote.worker.sensors.throttled import FIELD, of_nvml

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
    driver does not support. CUDA numbers GPUs in another order than NVML, and fewer where some are hidden from it."""

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
    calls: list[tuple[str, Callable[[], float]]] = [
        ("gpu_percent", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        ("gpu_memory_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
        ("gpu_clock_hz", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
        ("gpu_temperature_c", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        # By the name that older drivers know, and by the newer one.
        (FIELD, lambda: of_nvml(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))),
        (FIELD, lambda: of_nvml(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))),
    ]
    gauges = {field: gauge for field, call in calls if (gauge := answering(field, name, reader(call)))}

    def instant_w() -> float:
        (found,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
        if found.nvmlReturn:
            raise nvml.NVMLError(found.nvmlReturn)
        return float(found.value.uiVal / 1e3)

    # Energy: since Volta. On newer GPUs the plain power is a mean over the last second.
    sources = (
        reader(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3),
        reader(instant_w),
        reader(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
    )
    energy, *powers = (read if read() is not None else None for read in sources)
    power = next(filter(None, powers), None)
    out = "the host"
    with suppress(nvml.NVMLError):
        if seen := re.search("[AH]100", str(nvml.nvmlDeviceGetName(handle))):
            out += f" (and an {seen[0]}'s sensor sees a quarter of the time: arXiv 2312.02741)"
    name += " energy counter" if energy else " power, integrated"
    meter = Meter(name, energy, power, least_window_s=LEAST_WINDOW_S, leaves_out=out)
    return [*gauges.values(), *[meter] * bool(energy or power)]
