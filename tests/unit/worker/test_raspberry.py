"""What a Raspberry Pi's firmware prints, and a `vcgencmd` that is missing or refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pareto.remote.worker.sensors import raspberry
from pareto.remote.worker.sensors.raspberry import parse_rails_w, parse_throttled, throttled_words

# Layout, rails and channels as a Pi 5 prints them (recorded in github.com/jfikar/RPi5-power); rounder values.
PMIC = """\
 3V7_WL_SW_A current(0)=0.00000000A
   3V3_SYS_A current(1)=0.06000000A
   1V8_SYS_A current(2)=0.16000000A
  DDR_VDD2_A current(3)=0.00800000A
  DDR_VDDQ_A current(4)=0.00000000A
   1V1_SYS_A current(5)=0.18000000A
    0V8_SW_A current(6)=0.33000000A
  VDD_CORE_A current(7)=10.90000000A
   3V3_DAC_A current(17)=0.00040000A
   3V3_ADC_A current(18)=0.00040000A
   0V8_AON_A current(16)=0.00600000A
      HDMI_A current(22)=0.01400000A
 3V7_WL_SW_V volt(8)=3.80000000V
   3V3_SYS_V volt(9)=3.31000000V
   1V8_SYS_V volt(10)=1.80000000V
  DDR_VDD2_V volt(11)=1.10000000V
  DDR_VDDQ_V volt(12)=0.60000000V
   1V1_SYS_V volt(13)=1.10000000V
    0V8_SW_V volt(14)=0.80000000V
  VDD_CORE_V volt(15)=0.90000000V
   3V3_DAC_V volt(20)=3.30000000V
   3V3_ADC_V volt(21)=3.30000000V
   0V8_AON_V volt(19)=0.80000000V
      HDMI_V volt(23)=5.07000000V
     EXT5V_V volt(24)=5.07000000V
      BATT_V volt(25)=3.01000000V
"""
UNKNOWN = 'error=1 error_msg="Command not registered"\n'


def test_power_is_the_sum_over_rails_with_both_readings() -> None:
    expected = (
        0.06 * 3.31  # 3V3_SYS
        + 0.16 * 1.8  # 1V8_SYS
        + 0.008 * 1.1  # DDR_VDD2
        + 0.18 * 1.1  # 1V1_SYS
        + 0.33 * 0.8  # 0V8_SW
        + 10.9 * 0.9  # VDD_CORE
        + 2 * 0.0004 * 3.3  # 3V3_DAC, 3V3_ADC
        + 0.006 * 0.8  # 0V8_AON
        + 0.014 * 5.07  # HDMI
    )
    assert parse_rails_w(PMIC) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", UNKNOWN, "EXT5V_V volt(24)=5.07V\n", "HDMI_A current(22)=0.01A\n"])
def test_without_a_pair_there_is_no_power(text: str) -> None:
    assert parse_rails_w(text) is None


BITS = {"throttled=0x0\n": 0, "throttled=0x50005\n": 0x50005}


@pytest.mark.parametrize("text", [*BITS, "", UNKNOWN, "throttled=\n", "VCHI initialization failed\n"])
def test_throttled_bits(text: str) -> None:
    assert parse_throttled(text) == BITS.get(text)


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, []),
        (0x1, ["under-voltage"]),
        (0x2, ["frequency capped"]),
        (0x4, ["throttled"]),
        (0x8, ["soft temperature limit"]),
        (0x50005, ["under-voltage", "throttled"]),
        (0xF0000, []),  # since boot, not now
    ],
)
def test_words_for_what_is_on_now(bits: int, words: list[str]) -> None:
    assert throttled_words(bits) == words


def vcgencmd(folder: Path, script: str) -> None:
    program = folder / "vcgencmd"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_what_the_program_prints_is_read(path: Path) -> None:
    vcgencmd(
        path,
        """case "$1" in
        get_throttled) echo throttled=0x50005;;
        pmic_read_adc) echo '  HDMI_A current(22)=0.5A'; echo '  HDMI_V volt(23)=5.0V';;
        esac""",
    )
    throttling, rails = raspberry.throttling(), raspberry.rails()
    assert throttling is not None
    assert rails is not None
    assert (throttling.field, throttling.read()) == ("throttled", 0x50005)
    assert rails.sample(0.0).power_w == 2.5


@pytest.mark.parametrize(
    "script",
    [
        f"echo '{UNKNOWN.strip()}'",  # an older Pi's firmware does not know pmic_read_adc
        "echo throttled=0x0; echo 'HDMI_A current(22)=1A'; echo 'HDMI_V volt(23)=5V'; exit 255",
        "exec /bin/sleep 1000",
        "",
    ],
    ids=["unknown", "denied", "hangs", "not there"],
)
def test_a_refusal_is_no_sensor(path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    if script:
        vcgencmd(path, script)
    monkeypatch.setattr(raspberry, "_TIMEOUT_S", 0.05 if "sleep" in script else 2.0)
    assert raspberry.throttling() is None
    assert raspberry.rails() is None
