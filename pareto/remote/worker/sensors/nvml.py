"""NVIDIA GPUs, by NVML through the optional package nvidia-ml-py:
https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pareto.remote.worker.sensors.energy import CounterMeter, Gauge, Meter, PowerMeter, answering

_KINDS = ("GPU-", "MIG-")
"""How NVML's UUIDs begin; CUDA's own lack it."""

LEAST_WINDOW_S = 1.0
"""Energy and power move every 100 ms or so: of a shorter window, more than a tenth may be missing at either end."""


@dataclass(frozen=True)
class Gpu:
    """The sensors of one GPU: of the whole device, whoever uses it."""

    gauges: tuple[Gauge, ...] = ()
    meter: Meter | None = None


def load() -> Any:
    """The module pynvml, initialised; None without it or without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        return None
    except pynvml.NVMLError:
        return None
    return pynvml


def gpu(uuid: str, nvml: Any) -> Gpu:
    """The sensors of the GPU of that UUID, without those that this device or driver does not support. CUDA numbers GPUs
    in another order than NVML, and fewer where some are hidden from it. `nvml` is what `load` gave."""

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
    calls: dict[str, Callable[[], float]] = {
        "gpu_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "gpu_memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "gpu_clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
    }
    gauges = [Gauge(field, name, reader(call)) for field, call in calls.items()]
    read_energy_j = reader(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)
    read_power_w = reader(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3)
    power = read_power_w if read_power_w() is not None else None
    meter: Meter | None = None
    if read_energy_j() is not None:  # since Volta; on newer GPUs the power is a mean over the last second
        meter = CounterMeter(name, read_energy_j, power, least_window_s=LEAST_WINDOW_S)
    elif power is not None:
        meter = PowerMeter(name, power, LEAST_WINDOW_S)
    return Gpu(tuple(gauge for gauge in gauges if answering(gauge)), meter)
