"""A GPU's sensors, over a stand-in for pynvml whose calls can fail."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pareto.remote.worker.sensors import nvml
from pareto.remote.worker.sensors.energy import Gauge, Meter, Metered


class NVMLError(Exception):
    pass


UUID = "GPU-5e3c2c3a-0d6b-7f4e"


class Pynvml:
    """pynvml with one GPU; `broken` holds the calls that raise."""

    NVML_CLOCK_SM = 1
    NVMLError = NVMLError

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.answers: dict[str, Any] = {
            "UtilizationRates": SimpleNamespace(gpu=87, memory=12),
            "MemoryInfo": SimpleNamespace(total=80, free=50, used=30),
            "ClockInfo": 1980,
            "TotalEnergyConsumption": 5_000_000,
            "PowerUsage": 70_500,
        }

    def nvmlInit(self) -> None:
        if "init" in self.broken:
            raise NVMLError("init")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != UUID:
            raise NVMLError("uuid")
        return "gpu 1"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = name.removeprefix("nvmlDeviceGet")

        def answer(handle: str, *clock: int) -> Any:
            assert (handle, clock) == ("gpu 1", (self.NVML_CLOCK_SM,) * (call == "ClockInfo"))
            if call in self.broken:
                raise NVMLError(call)
            return self.answers[call]

        return answer


ALL = ("UtilizationRates", "MemoryInfo", "ClockInfo", "TotalEnergyConsumption", "PowerUsage")


def gauges(found: list[Gauge | Meter]) -> list[Gauge]:
    return [each for each in found if isinstance(each, Gauge)]


def readings(found: list[Gauge | Meter]) -> dict[str, object]:
    return {each.field: each.read() for each in gauges(found)}


def meter_of(found: list[Gauge | Meter]) -> Meter:
    (meter,) = (each for each in found if isinstance(each, Meter))
    assert meter.least_window_s == nvml.LEAST_WINDOW_S
    return meter


def test_gauges_in_base_units() -> None:
    gpu = nvml.gpu(UUID, Pynvml())
    assert readings(gpu) == {"gpu_percent": 87, "gpu_memory_bytes": 30, "gpu_clock_hz": 1.98e9}
    assert {x.source for x in gauges(gpu)} == {f"nvml {UUID}"}


def test_energy_by_the_counter() -> None:
    pynvml = Pynvml()
    meter = meter_of(nvml.gpu(UUID, pynvml))
    assert meter.sample(0.0) == Metered(0.0, 70.5)
    pynvml.answers["TotalEnergyConsumption"] += 12_000
    assert meter.sample(1.0) == Metered(12.0, 70.5)


def test_power_is_integrated_where_there_is_no_counter() -> None:
    meter = meter_of(nvml.gpu(UUID, Pynvml("TotalEnergyConsumption")))
    meter.sample(0.0)
    assert meter.sample(2.0) == Metered(141.0, 70.5)


def test_the_counter_alone_gives_power_by_its_rise() -> None:
    pynvml = Pynvml("PowerUsage")
    meter = meter_of(nvml.gpu(UUID, pynvml))
    meter.sample(0.0)
    pynvml.answers["TotalEnergyConsumption"] += 12_000
    assert meter.sample(2.0) == Metered(12.0, 6.0)


@pytest.mark.parametrize(
    ("broken", "field"),
    [*zip(ALL, ("gpu_percent", "gpu_memory_bytes", "gpu_clock_hz"), strict=False)],
)
def test_what_a_device_does_not_support_is_left_out(broken: str, field: str) -> None:
    found = readings(nvml.gpu(UUID, Pynvml(broken)))
    assert field not in found
    assert len(found) == 2


def test_an_error_later_is_a_missing_value() -> None:
    pynvml = Pynvml()
    gpu = nvml.gpu(UUID, pynvml)
    meter = meter_of(gpu)
    pynvml.broken.update(ALL)
    assert set(readings(gpu).values()) == {None}
    assert meter.sample(0.0) == Metered(None, None)


def test_a_gpu_that_is_not_there_or_answers_nothing_has_no_sensor() -> None:
    assert nvml.gpu("GPU-0", Pynvml()) == []
    assert nvml.gpu(UUID, Pynvml(*ALL)) == []


def test_the_uuid_may_be_as_cuda_tells_it() -> None:
    assert readings(nvml.gpu(UUID.removeprefix("GPU-"), Pynvml()))["gpu_percent"] == 87


def test_without_pynvml_or_a_driver_there_is_no_sensor(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = Pynvml()
    for module, loaded in ((pynvml, pynvml), (Pynvml("init"), None), (None, None)):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert nvml.load() is loaded
    assert nvml.gpu(UUID, None) == []
