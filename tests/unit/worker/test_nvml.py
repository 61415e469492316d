"""A GPU's sensors, over a stand-in for pynvml whose calls can fail."""

from __future__ import annotations

import sys
from types import SimpleNamespace

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
        self.energy_mj = 5_000_000

    def _answer(self, call: str, handle: str, value: object) -> object:
        assert handle == "gpu 1"
        if call in self.broken:
            raise NVMLError(call)
        return value

    def nvmlInit(self) -> None:
        if "init" in self.broken:
            raise NVMLError("init")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != UUID:
            raise NVMLError("uuid")
        return "gpu 1"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> object:
        return self._answer("utilization", handle, SimpleNamespace(gpu=87, memory=12))

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> object:
        return self._answer("memory", handle, SimpleNamespace(total=80, free=50, used=30))

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> object:
        assert clock == self.NVML_CLOCK_SM
        return self._answer("clock", handle, 1980)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> object:
        return self._answer("energy", handle, self.energy_mj)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> object:
        return self._answer("power", handle, 70_500)


ALL = ("utilization", "memory", "clock", "energy", "power")


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
    pynvml.energy_mj += 12_000
    assert meter.sample(1.0) == Metered(12.0, 70.5)


def test_power_is_integrated_where_there_is_no_counter() -> None:
    meter = meter_of(nvml.gpu(UUID, Pynvml("energy")))
    meter.sample(0.0)
    assert meter.sample(2.0) == Metered(141.0, 70.5)


def test_the_counter_alone_gives_power_by_its_rise() -> None:
    pynvml = Pynvml("power")
    meter = meter_of(nvml.gpu(UUID, pynvml))
    meter.sample(0.0)
    pynvml.energy_mj += 12_000
    assert meter.sample(2.0) == Metered(12.0, 6.0)


@pytest.mark.parametrize(
    ("broken", "field"),
    [("utilization", "gpu_percent"), ("memory", "gpu_memory_bytes"), ("clock", "gpu_clock_hz")],
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
