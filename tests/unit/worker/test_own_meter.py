"""A user's own meter of energy: how it is made and read, and what becomes of one that fails or hangs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pareto.hosts.inventory import METER
from pareto.protocol.errors import UserError
from pareto.protocol.own import Own
from pareto.remote.worker.sensors import own_meter
from tests.program import Program, wait_until
from tests.unit.refusals import refusal

PLUG = """
from pathlib import Path

class Plug:
    least_window_s, leaves_out = 3.0, "nothing"

    def read(self):
        return map(float, Path(__file__).with_name("reading").read_text().split())
"""


@pytest.fixture
def plug(tmp_path: Path) -> Iterator[Own]:
    (tmp_path / "shelly.py").write_text(PLUG)
    told(tmp_path, 0.0, 5.0)
    made = METER.own(f"{tmp_path}/shelly.py:Plug")
    assert made is not None
    yield made
    told(tmp_path, -1.0, 0.0)  # which ends its thread


def told(folder: Path, seconds: float, joules: float) -> None:
    (folder / "next").write_text(f"{seconds} {joules}")
    (folder / "next").replace(folder / "reading")


def test_its_joules_are_counted_from_the_first_reading_on(plug: Own, tmp_path: Path) -> None:
    """To them comes the energy that its power has made since the last one."""
    meter = own_meter.meter(plug)
    assert (meter.name, meter.least_window_s, meter.leaves_out) == ("shelly.Plug", 3.0, "nothing")
    assert meter.sample(100.0).energy_j == 0.0
    told(tmp_path, 1e9, 25.0)  # so long a time that its power adds nothing
    assert wait_until(lambda: (meter.read_energy_j or float)() == pytest.approx(25.0))
    found = meter.sample(110.0)
    assert (found.energy_j, found.power_w) == (pytest.approx(20.0), pytest.approx(2.0))


def test_between_its_readings_its_power_goes_on(plug: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = own_meter.Reader(type("Still", (), {"read": lambda self: (0.0, 5.0)})(), plug)
    reader._readings = [(0.0, 5.0, 50.0), (10.0, 25.0, 60.0)]
    monkeypatch.setattr(own_meter.time, "monotonic", lambda: 61.5)
    assert reader.energy_j() == pytest.approx(25.0 + 1.5 * 2.0)
    monkeypatch.setattr(own_meter.time, "monotonic", lambda: 60.1 + own_meter.LATE_S)
    assert reader.energy_j() is None, "it may hang"


@pytest.mark.parametrize("reading", ["0.5 4.0", "nan 9", "-3 9", "1 2 3", "", "1 x"])
def test_one_that_fails_later_has_no_energy(
    plug: Own, tmp_path: Path, capsys: pytest.CaptureFixture[str], reading: str
) -> None:
    meter = own_meter.meter(plug)
    assert meter.read_energy_j is not None
    (tmp_path / "reading").write_text(reading)
    assert wait_until(lambda: meter.sample(1.0).energy_j is None)
    # Threads of other tests may end meanwhile, and say so.
    (line,) = (line for line in capsys.readouterr().err.splitlines() if str(tmp_path) in line)
    assert "Plug.read() fails" in line


BAD = {
    "class Plug:\n  def __init__(self): raise OSError('no plug')": "no plug",
    "class Plug:\n  def read(self): raise TimeoutError('no answer')": "no answer",
    "class Plug:\n  def read(self): return 5": "Plug.read() fails",
    "class Socket: ...": "Plug",
    "def Plug(:": "SyntaxError",
    "import threading\nclass Plug:\n  def read(self): threading.Event().wait(60)": "takes longer than",
}


@pytest.mark.parametrize("code", BAD)
def test_one_that_cannot_be_read_is_one_line(
    plug: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(own_meter, "FIRST_S", 0.2)
    (tmp_path / "shelly.py").write_text(code)
    said = refusal(UserError, own_meter.meter, plug)
    assert BAD[code] in said
    assert "shelly.py" in said


def test_the_monitor_takes_it_in_place_of_the_hosts_sensors(plug: Own, tmp_path: Path) -> None:
    program = Program("pareto.remote.worker.monitor", "--sysfs", str(tmp_path))
    mine = {"name": plug.name, "file": plug.file, "attribute": "Plug", "typed": "shelly.py"}
    sensors = program.result("begin", pid=os.getpid(), interval_s=0.05, gpu=None, meter=mine)
    assert sensors["by_field"]["energy_j"] == "shelly.Plug"
    assert (sensors["least_window_s"], sensors["leaves_out"]) == (3.0, "shelly.Plug: nothing")
    assert program.result("latest")["energy_j"] == 0.0
    (tmp_path / "shelly.py").write_text("class Plug: ...")
    reply = program.reply("begin", pid=os.getpid(), interval_s=0.05, gpu=None, meter=mine)
    assert not reply["ok"]
    assert "shelly.py" in reply["error"]
    assert program.close() == 0
