"""A GPU's sensors, by a stand-in for pynvml."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pareto.remote.worker.sensors import nvml, throttled
from pareto.remote.worker.sensors.energy import Gauge, Meter, Metered
from pareto.remote.worker.sensors.throttled import throttled_words

UUID = "GPU-5e3c2c3a-0d6b-7f4e"
READINGS = {"gpu_percent": 87, "gpu_memory_bytes": 30, "gpu_clock_hz": 1.98e9, "gpu_temperature_c": 61}
READINGS |= {"throttled": 0x80}
COUNTER, POWER, INSTANT = "TotalEnergyConsumption", "PowerUsage", "FieldValues"
OLD, NEW = "CurrentClocksThrottleReasons", "CurrentClocksEventReasons"
POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80


class NVMLError(Exception):
    pass


class Pynvml:
    """pynvml with one GPU; `broken` holds the calls that raise."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_FI_DEV_POWER_INSTANT = 186
    NVMLError = NVMLError
    asked = types.MappingProxyType({"ClockInfo": (1,), "Temperature": (0,), INSTANT: ([186],)})

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.answers: dict[str, Any] = {
            "UtilizationRates": SimpleNamespace(gpu=87, memory=12),
            "MemoryInfo": SimpleNamespace(total=80, free=50, used=30),
            "ClockInfo": 1980,
            "Temperature": 61,
            NEW: POWER_CAP | 0x1,
            COUNTER: 5_000_000,
            POWER: 70_500,
            INSTANT: [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=80_500))],
            "Name": "NVIDIA L4",
            OLD: POWER_CAP,
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

        def answer(handle: str, *more: Any) -> Any:
            assert (handle, more) == ("gpu 1", self.asked.get(call, ()))
            if call in self.broken:
                raise NVMLError(call)
            return self.answers[call]

        return answer


def readings(found: list[Gauge | Meter]) -> dict[str, object]:
    return {each.field: each.read() for each in found if isinstance(each, Gauge)}


def meter_of(found: list[Gauge | Meter]) -> Meter:
    (meter,) = (each for each in found if isinstance(each, Meter))
    assert meter.least_window_s == nvml.LEAST_WINDOW_S
    return meter


@pytest.mark.parametrize(
    ("broken", "how", "metered"),
    [
        # The counter, and beside it the power of the moment, or where there is none of the last second, integrated
        ([], "energy counter", [(0.0, 80.5, 0.0), (12.0, 80.5, 161.0)]),
        ([INSTANT], "energy counter", [(0.0, 70.5, 0.0), (12.0, 70.5, 141.0)]),
        ([COUNTER], "power, integrated", [(0.0, 80.5, None), (161.0, 80.5, None)]),
        ([POWER, INSTANT], "energy counter", [(0.0, None, None), (12.0, 6.0, None)]),  # by the counter's rise
    ],
)
def test_a_gpus_energy_and_power(broken: list[str], how: str, metered: list[Any]) -> None:
    pynvml = Pynvml(*broken)
    meter = meter_of(nvml.gpu(UUID, pynvml))
    assert meter.name == f"nvml {UUID} {how}"
    came = [meter.sample(0.0)]
    pynvml.answers[COUNTER] += 12_000
    assert [*came, meter.sample(2.0)] == metered


def test_a_field_that_nvml_does_not_know_is_no_power() -> None:
    pynvml = Pynvml(COUNTER, POWER)
    pynvml.answers[INSTANT][0].nvmlReturn = 3
    assert not [each for each in nvml.gpu(UUID, pynvml) if isinstance(each, Meter)]


@pytest.mark.parametrize("model", ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe", "NVIDIA H200", "Tesla V100"])
def test_whose_sensor_sees_a_part_of_the_time(model: str) -> None:
    pynvml = Pynvml()
    pynvml.answers["Name"] = model
    is_partly = model[7:11] in ("A100", "H100")
    assert ("a quarter" in meter_of(nvml.gpu(UUID, pynvml)).leaves_out) == is_partly


REASONS = {
    0: [], 0x1 | 0x2 | 0x10: [], POWER_CAP: ["GPU at its power cap"], SW_THERMAL: ["GPU slowed for heat"],
    HW_SLOWDOWN | HW_THERMAL: ["GPU slowed for heat", "GPU slowed by its hardware or power supply"],
    POWER_BRAKE | HW_SLOWDOWN: ["GPU slowed by its hardware or power supply"],
}  # fmt: skip


@pytest.mark.parametrize("known_as", [NEW, OLD])
def test_why_a_gpus_clock_is_low(known_as: str) -> None:
    pynvml = Pynvml(*{NEW, OLD} - {known_as})
    for reasons, words in REASONS.items():
        pynvml.answers[known_as] = reasons
        bits = readings(nvml.gpu(UUID, pynvml))["throttled"]
        assert isinstance(bits, int)
        assert throttled_words(bits) == words
        assert bool(bits & throttled.SPOILING) == (bool(words) and reasons != POWER_CAP)
    pynvml.broken |= {NEW, OLD}
    assert "throttled" not in readings(nvml.gpu(UUID, pynvml))


def test_gauges_in_base_units_without_those_that_a_device_does_not_support(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = nvml.gpu(UUID, Pynvml())
    assert {each.source for each in gpu if isinstance(each, Gauge)} == {f"nvml {UUID}"}
    assert readings(gpu) == readings(nvml.gpu(UUID.removeprefix("GPU-"), Pynvml())) == READINGS, "as by CUDA"
    for broken, field in zip(Pynvml().answers, READINGS, strict=False):
        left = {name: value for name, value in READINGS.items() if name != field}
        assert readings(nvml.gpu(UUID, Pynvml(broken, OLD))) == left
    # An error later is a missing value and earlier no sensor.
    pynvml = Pynvml()
    gpu = nvml.gpu(UUID, pynvml)
    meter = meter_of(gpu)
    pynvml.broken.update(pynvml.answers)
    assert readings(gpu) == dict.fromkeys(READINGS)
    assert meter.sample(0.0) == Metered(None, None)
    assert nvml.gpu("GPU-0", Pynvml()) == nvml.gpu(UUID, pynvml) == nvml.gpu(UUID, None) == []
    for module, loaded in ((pynvml, pynvml), (Pynvml("init"), None), (None, None)):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert nvml.load() is loaded
