from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pareto.hosts.leases import HostLeases, hold_cores, in_words
from pareto.protocol.host_messages import Holder, Lease, TakeLease
from pareto.remote.worker import lease


def test_all_drivers_take_hosts_in_one_order_so_that_no_two_wait_for_each_other() -> None:
    taken: list[str] = []

    def remote(name: str) -> Any:
        def ask(request: object, timeout_s: float = 0.0) -> Lease:
            taken.extend([name] * isinstance(request, TakeLease))
            return Lease(name, [])

        session = SimpleNamespace(ask=ask)
        return SimpleNamespace(host=SimpleNamespace(name=name), start=lambda module: session)

    for chain in ({"edge": "pi", "server": "desk"}, {"edge": "desk", "server": "pi"}):
        remotes = {role: remote(name) for role, name in chain.items()}
        HostLeases(remotes, 0.0, print).take()
    assert taken == ["desk", "pi"] * 2


@pytest.mark.parametrize("put", [os.mkdir, os.mkfifo, lambda file: file.symlink_to("/etc/hostname")])
def test_what_lies_in_place_of_a_core_s_queue_is_said_once_and_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(lease, "FOLDERS", (tmp_path,))
    for core in (5, 6):
        put(tmp_path / f"{lease.HOST}-core-{core}")
    said: list[str] = []
    hold_cores([5, 6, 7], 0.0, said.append)()
    (line,) = said
    assert line.startswith("attention: whether others measure on cores 5, 6 ")
    assert str(tmp_path / f"{lease.HOST}-core-5") in line


def test_words_of_others_are_shown_and_do_nothing_to_a_terminal() -> None:
    assert "\x1b" not in in_words([Holder("eve\x1b[2J", "\x1b]0;x\x07", "run\nof eve", 1.0)])
