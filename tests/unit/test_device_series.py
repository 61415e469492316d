"""What samples say about a span of time, and when they say nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pareto.device_series import Series, energy_per_image, share, summary, throttled_now
from tests import REPOSITORY

TIMES = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
ENERGY = [0.0, 10.0, 20.0, 50.0, 60.0, 80.0]  # watts between them: 10 10 30 10 20
NOTHING = dict.fromkeys(
    ("temperature_c", "frequency_hz", "throttled", "gpu_percent", "gpu_memory_bytes", "power_w")
)


def series(**columns: list[float | None]) -> Series:
    return {"at_s": TIMES, **columns}


COUNTED = series(energy_j=[*ENERGY])


def test_energy_is_interpolated_at_both_ends() -> None:
    assert energy_per_image(COUNTED, (0.5, 4.25), 1) == pytest.approx(65.0 - 5.0)


def test_energy_is_shared_by_the_images() -> None:
    assert energy_per_image(COUNTED, (0.5, 4.25), 30) == pytest.approx(2.0)


def test_ends_on_samples_need_none_beyond() -> None:
    assert energy_per_image(COUNTED, (0.0, 5.0), 1) == pytest.approx(80.0)
    assert energy_per_image(COUNTED, (1.0, 3.0), 1) == pytest.approx(40.0)


@pytest.mark.parametrize("window", [(-0.1, 4.0), (1.0, 5.1), (6.0, 9.0), (-9.0, -6.0)])
def test_samples_that_do_not_reach_to_both_ends(window: tuple[float, float]) -> None:
    assert energy_per_image(COUNTED, window, 1) is None


def test_two_samples_inside_are_too_few() -> None:
    assert energy_per_image(COUNTED, (0.9, 2.1), 1) is None
    assert energy_per_image(COUNTED, (0.9, 3.0), 1) is not None


@pytest.mark.parametrize("images", [0, -1])
def test_no_images_have_no_energy(images: int) -> None:
    assert energy_per_image(COUNTED, (1.0, 4.0), images) is None


def test_energy_that_was_not_measured() -> None:
    assert energy_per_image(series(), (1.0, 4.0), 1) is None
    assert energy_per_image(series(energy_j=[None] * 6), (1.0, 4.0), 1) is None
    assert energy_per_image({}, (1.0, 4.0), 1) is None


@pytest.mark.parametrize("missed", [0, 1, 2, 3, 4])
def test_a_reading_missed_in_the_window_or_next_to_it(missed: int) -> None:
    energies: list[float | None] = [*ENERGY]
    energies[missed] = None
    assert energy_per_image(series(energy_j=energies), (0.5, 3.5), 1) is None


def test_a_reading_missed_elsewhere_does_no_harm() -> None:
    assert energy_per_image(series(energy_j=[*ENERGY[:5], None]), (0.5, 3.5), 1) == pytest.approx(50.0)


def test_a_counters_share_of_a_window_is_interpolated_at_both_ends() -> None:
    counted = series(busy_s=[0.0, 0.5, 1.5, 1.5, 1.5, 2.5])
    assert share(counted, "busy_s", (0.0, 5.0)) == pytest.approx(0.5)
    assert share(counted, "busy_s", (0.5, 1.5)) == pytest.approx(0.75)
    assert share(counted, "busy_s", (2.2, 2.8)) == 0.0  # between two samples


def test_a_counter_that_falls_back_a_little_is_none() -> None:
    """Two counts that are read one after the other are not quite of the same time."""
    assert share(series(others_s=[0.0, 0.0, -0.01, -0.01, 0.0, 0.0]), "others_s", (1.0, 2.0)) == 0.0


@pytest.mark.parametrize("window", [(-0.1, 4.0), (1.0, 5.1), (2.0, 2.0)])
def test_a_share_of_a_window_that_was_not_seen_is_not_known(window: tuple[float, float]) -> None:
    assert share(series(busy_s=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), "busy_s", window) is None
    assert share(series(), "busy_s", (1.0, 2.0)) is None
    assert share(series(busy_s=[None] * 6), "busy_s", (1.0, 2.0)) is None


def test_summary_of_the_samples_inside() -> None:
    found = summary(
        series(
            temperature_c=[90.0, 50.0, 55.0, 52.0, 91.0, 92.0],
            frequency_hz=[0.0, 1e9, 2e9, 3e9, 0.0, 0.0],
            throttled=[0x8, 0x50000, 0x50001, 0x50004, 0x8, 0x8],
            gpu_percent=[100.0, 10.0, 20.0, 60.0, 100.0, 100.0],
            gpu_memory_bytes=[99, 5, 7, 6, 99, 99],
            power_w=[99.0, 1.0, 2.0, 6.0, 99.0, 99.0],
        ),
        (1.0, 3.0),
    )
    assert found == {
        "temperature_c": 55.0,
        "frequency_hz": 2e9,
        "throttled": 0x5,
        "gpu_percent": 30.0,
        "gpu_memory_bytes": 7,
        "power_w": 3.0,
    }


def test_what_some_samples_miss_is_taken_from_the_others() -> None:
    found = summary(series(power_w=[None, 2.0, None, 4.0, None, None]), (0.0, 5.0))
    assert found == {**NOTHING, "power_w": 3.0}


def test_throttling_between_two_samples_is_seen() -> None:
    """What was so since boot comes up in the window: 0x40000 is "has been throttled"."""
    before, after = [0x10000] * 3, [0x50000] * 3
    assert summary(series(throttled=[*before, *after]), (0.0, 5.0))["throttled"] == 0x4
    assert summary(series(throttled=after + after), (0.0, 5.0))["throttled"] == 0


def test_not_throttled_is_measured() -> None:
    assert summary(series(throttled=[0] * 6), (0.0, 5.0)) == {**NOTHING, "throttled": 0}


@pytest.mark.parametrize("columns", [series(), series(power_w=[None] * 6), {}])
def test_what_was_not_measured_is_none(columns: Series) -> None:
    assert summary(columns, (0.0, 5.0)) == NOTHING


def test_a_window_between_two_samples_saw_nothing() -> None:
    assert summary(series(power_w=[1.0] * 6), (1.2, 1.8)) == NOTHING


def test_throttled_now_in_words() -> None:
    assert throttled_now(0x50005) == ["under-voltage", "throttled"]


def test_the_driver_needs_no_psutil_for_it() -> None:
    code = "import sys; sys.modules.update(psutil=None, pynvml=None, torch=None); import pareto.device_series"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == 0
