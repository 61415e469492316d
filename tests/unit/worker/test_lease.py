"""The queue of those who want a host, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pareto.hosts.connection import ChildProcess
from pareto.hosts.session import Session, SessionLost
from pareto.protocol.host_messages import GetCarrierLosses, GetLease, TakeLease
from pareto.remote.worker.lease import carrier_losses
from tests import REPOSITORY

PROGRAM = """
import sys
from pathlib import Path
from pareto.remote.worker import lease
lease.FOLDERS = (Path(sys.argv[1]),)
lease.main()
"""


class Driver:
    """One that wants the host. pid: of the program that takes its ticket."""

    def __init__(self, folder: Path, who: str, key: str = "") -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the wire)
        wire = ChildProcess([sys.executable, "-c", PROGRAM, str(folder)], cwd=REPOSITORY, errors=errors)
        self.session, self.pid = Session(who, wire), wire.process.pid
        self._take = TakeLease(key or who, who, f"run of {who}")

    def ahead(self) -> list[str]:
        """Takes a ticket at the first call; who comes before it."""
        return [each.who for each in self.session.ask(self._take).ahead]

    def all(self) -> list[str]:
        return [each.who for each in self.session.ask(GetLease()).ahead]


Drivers = Callable[..., Driver]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Drivers]:
    with ExitStack() as undo:

        def start(who: str, key: str = "") -> Driver:
            made = Driver(tmp_path, who, key)
            undo.callback(made.session.close)
            return made

        yield start


def test_a_host_is_held_by_one_and_the_others_wait_in_the_order_of_coming(driver: Drivers) -> None:
    ann, bob, cem, looker = (driver(who) for who in ("ann", "bob", "cem", "looker"))
    assert looker.all() == []
    assert [each.ahead() for each in (ann, bob, cem)] == [[], ["ann"], ["ann", "bob"]]
    assert looker.all() == ["ann", "bob", "cem"]
    assert ann.ahead() == [], "it has its ticket"
    bob.session.close()
    assert driver("dan").ahead() == ["ann", "cem"]
    ann.session.close()
    assert cem.ahead() == []


def test_it_counts_how_often_an_interface_lost_its_carrier(tmp_path: Path, driver: Drivers) -> None:
    assert driver("ann").session.ask(GetCarrierLosses("no-such")) == 0
    (folder := tmp_path / "class/net/eth0").mkdir(parents=True)
    (folder / "carrier_down_count").write_text("3\n")
    (folder / "carrier").write_text("1\n")
    assert carrier_losses("eth0", tmp_path) == 3
    assert carrier_losses("../eth0", tmp_path) == 3, "a name is no path"
    (folder / "carrier").write_text("0\n")
    assert carrier_losses("eth0", tmp_path) is None


def test_one_may_have_a_machine_in_two_roles_and_holds_nothing_once_killed(driver: Drivers) -> None:
    ann, bob, again = driver("ann", "run 1"), driver("bob"), driver("ann", "run 1")
    assert (ann.ahead(), bob.ahead(), again.ahead()) == ([], ["ann"], ["bob"])
    for each in (ann, again):
        os.kill(each.pid, signal.SIGKILL)
    with pytest.raises(SessionLost):
        ann.all()
    assert bob.ahead() == []


def test_all_users_may_take_a_ticket_and_none_is_led_elsewhere(tmp_path: Path, driver: Drivers) -> None:
    umask = os.umask(0o077)
    try:
        assert driver("ann").ahead() == []
    finally:
        os.umask(umask)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o666
    file.unlink()
    target = tmp_path / "target"
    target.touch()
    file.symlink_to(target)
    with pytest.raises(SessionLost, match="cannot be held"):
        driver("bob").ahead()
    assert target.read_bytes() == b""


_OTHERS = json.dumps({"mark": "", "who": "eve", "run": "", "origin": "", "since_s": 0})


def test_what_others_write_into_the_queue_stops_nobody(tmp_path: Path, driver: Drivers) -> None:
    looker = driver("looker")
    assert looker.all() == []
    (file,) = tmp_path.iterdir()
    for content in (
        *("nonsense", "[]", '{"1": {"who": "ann"}}', '{"x": null}', "[" * 100_000, "x" * 300_000),
        f'{{"{10**30}": {_OTHERS}, "-{10**14}": {_OTHERS}, "1": {_OTHERS}}}',
        f'{{"1": {_OTHERS.replace("0}", f"{10**400}}}")}}}',
    ):
        file.write_text(content)
        ann = driver("ann")
        assert (ann.ahead(), looker.all()) == ([], ["ann"]), content[:100]
        ann.session.close()
