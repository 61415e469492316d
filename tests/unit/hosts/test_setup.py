"""Setting this machine up as if it were hosts: side by side, and with a sudo of its own."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import Future, as_completed
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import together
from pareto.hosts.connection import Connection, ThisMachine, Unreachable
from pareto.hosts.inventory import HostEntry
from pareto.hosts.setup import finding, privileged
from pareto.hosts.setup import hosts as setup
from pareto.hosts.setup.finding import REQUIREMENTS
from tests.unit.example_host import ExampleHost, example_host


def test_hosts_are_set_up_side_by_side_and_one_that_fails_holds_up_none(
    host: ExampleHost, venv: Path, snapshot: SnapshotAssertion
) -> None:
    """No environment is made before both of them have begun to."""
    begun = [f"{host.home}/{folder}/begun" for folder in ("one", "two")]
    turns = f'touch "${{4%/*}}/begun"; until [ -e {begun[0]} -a -e {begun[1]} ]; do sleep 1; done'
    copy = f'mkdir -p "$4" && cp -a {venv}/. "$4"'
    host.program("python3", f'case "$*" in *--clear*) {turns}; {copy} ;; esac')

    def connect(member: HostEntry) -> Connection:
        if member.name == "gone":
            raise Unreachable("gone (pi@10.0.0.9) does not answer")
        return ThisMachine()

    members = [host.member(name="gone"), host.member(folder="one"), host.member(name="gpu", folder="two")]
    assert not setup.set_up(members, connect, say=host.lines.append, ask=None)
    assert sorted(host.lines) == snapshot
    assert host.lines[-2:] == ["pi: set up", "gpu: set up"]


class TestSudo:
    """The machine's own sudo is not asked: one that takes the password `secret`, and runs nothing as root."""

    @pytest.fixture(autouse=True)
    def user(self, host: ExampleHost, monkeypatch: pytest.MonkeyPatch) -> None:
        host.program("id", '[ "$1" = -un ] && echo pi || echo 1000')
        host.program(
            "sudo",
            f"""
            echo "$*" >>{host.home}/asked
            case "$*" in
                "-n {privileged.LAUNCHER} --digest") [ ! -e {host.home}/later ] && cat {host.home}/digest ;;
                "-n true") [ -e {host.home}/free ] ;;
                *) [ -e {host.home}/free ] || {{ read word; [ "$word" = secret ]; }} ||
                       {{ echo "sudo: 1 incorrect password attempt" >&2; exit 1; }}
                   echo {privileged.digest()} >{host.home}/digest ;;
            esac""",
        )

    def set_up(self, host: ExampleHost, password: str | None) -> tuple[bool, list[str]]:
        host.lines.clear()
        prompts = []

        def ask(prompt: str) -> str:
            prompts.append(prompt)
            assert password is not None
            return password

        done = setup.set_up(
            [host.member()],
            lambda _: ThisMachine(),
            say=host.lines.append,
            ask=None if password is None else ask,
        )
        return done, prompts

    def test_the_password_is_asked_for_once_and_is_in_no_argument(
        self, host: ExampleHost, snapshot: SnapshotAssertion
    ) -> None:
        done, prompts = self.set_up(host, "secret")
        assert done
        assert len(prompts) == 1
        assert [*prompts, *host.lines] == snapshot
        asked = (host.home / "asked").read_text()
        assert "secret" not in asked
        assert "-k -S" in asked  # it reads the password from us in any case
        assert not list((host.home / ".pareto").glob("*.tar"))
        assert self.set_up(host, "secret") == (True, [])
        assert host.lines == ["pi: set up already"]

    def test_a_wrong_password_is_said_and_the_packages_go_on(
        self, host: ExampleHost, snapshot: SnapshotAssertion
    ) -> None:
        done, prompts = self.set_up(host, "wrong")
        assert not done
        assert len(prompts) == 1
        assert "1 incorrect password attempt" in host.lines[0]
        assert host.lines == snapshot
        assert (host.venv / ".requirements").exists()

    def test_without_a_terminal_the_command_is_printed(self, host: ExampleHost) -> None:
        done, _ = self.set_up(host, None)
        assert not done
        command = host.lines[0].partition("run there: ")[2].split()
        assert command[:2] == ["sudo", "sh"]
        assert Path(command[2]).read_text() == privileged.install_script("pi")
        assert Path(command[3]).read_bytes() == privileged.archive()

    def test_an_older_program_is_replaced_and_nobody_asked_where_sudo_asks_nothing(
        self, host: ExampleHost
    ) -> None:
        (host.home / "digest").write_text("older\n")
        (host.home / "free").touch()
        assert self.set_up(host, "unused") == (True, [])
        assert (host.home / "digest").read_text().strip() == privileged.digest()

    def test_a_line_of_sudoers_without_effect_is_told(
        self, host: ExampleHost, snapshot: SnapshotAssertion
    ) -> None:
        (host.home / "free").touch()
        (host.home / "later").touch()  # a line that comes after ours and asks for a password
        assert not self.set_up(host, None)[0]
        assert privileged.SUDOERS in host.lines[0]
        assert host.lines[0] == snapshot

    def test_without_sudo(
        self, host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
    ) -> None:
        (host.home / "bin" / "sudo").unlink()
        for name in ("cat", "mkdir", "rm"):
            (host.home / "bin" / name).symlink_to(str(shutil.which(name)))
        monkeypatch.setenv("PATH", f"{host.home}/bin")
        self.set_up(host, None)
        assert host.lines[0] == snapshot


@pytest.fixture
def bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExampleHost:
    return example_host(tmp_path, monkeypatch)


def test_each_host_has_a_line_with_what_it_can(
    bare_host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(finding, "REQUIREMENTS", REQUIREMENTS)
    members = [
        bare_host.member(name="ready", python=sys.executable, data_interface="eth0"),
        bare_host.member(name="new", role="server", ssh="gpu", device="cuda:0"),
        bare_host.member(name="between", role="middle", next_address="10.0.1.2", next_interface="eth1"),
    ]
    assert setup.list_hosts(
        members,
        lambda _: ThisMachine(),
        say=bare_host.lines.append,
        within_s=60,
    )
    assert "\n".join(bare_host.lines) == snapshot


def test_a_host_that_cannot_be_reached_holds_up_none(
    bare_host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """The time is up when two of the three have ended."""
    released = threading.Event()

    def connect(member: HostEntry) -> Connection:
        if member.name == "gone":
            raise Unreachable("gone (pi@10.0.0.9): does not answer on port 22")
        if member.name == "slow":
            released.wait()
        return ThisMachine()

    def show(*names: str) -> bool:
        bare_host.lines.clear()
        members = [bare_host.member(name=name) for name in names]
        return setup.list_hosts(members, connect, say=bare_host.lines.append, within_s=60)

    assert show("ready")
    assert not show("ready", "gone")

    def two_end(futures: Iterable[Future[object]], within_s: float) -> None:
        ended = as_completed(futures, within_s)
        next(ended), next(ended)

    monkeypatch.setattr(together, "wait", two_end)
    try:
        assert not show("gone", "slow", "ready")
    finally:
        released.set()
    assert "\n".join(bare_host.lines) == snapshot
