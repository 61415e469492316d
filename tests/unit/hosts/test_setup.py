"""Setting this machine up as if it were a host: virtual environments made here, an index in a folder.

Once by the real venv and pip, which take long; then by an environment that is copied, with a stand-in for pip in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from math import inf
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import packages, privileged, setup
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import Member
from pareto.hosts.way import Here, Unreachable, Way
from tests import REPOSITORY
from tests.unit.example_host import ExampleHost, example_host

STAND_IN = Path(__file__).with_name("stand_in_pip.py")
CEILING_S = 60.0
"""Against hanging; nothing here takes that long."""


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the stand-in for pip, and nothing else."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages_of,) = folder.glob("lib/python*/site-packages")
    pip = packages_of / "pip"
    pip.mkdir()
    (pip / "__init__.py").touch()
    shutil.copy(STAND_IN, pip / "__main__.py")
    return folder


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, venv: Path) -> ExampleHost:
    monkeypatch.setattr(packages, "_QUIET_S", inf)
    return hastened(example_host(tmp_path, monkeypatch, venv))


def hastened(host: ExampleHost) -> ExampleHost:
    """What is watched for a second at a time is watched for a moment."""
    host.program("sleep", f"exec {shutil.which('sleep')} 0.02")
    return host


def test_by_the_real_venv_and_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """Their words are read as they say them: what goes well, what there is not, and an index that does not answer."""
    host = hastened(example_host(tmp_path, monkeypatch))
    monkeypatch.setattr(packages, "_QUIET_S", 0.0)
    assert set_up(host)
    assert installed(host, "tiny") == "1.0"
    assert any(line.startswith("pi: still making it (") for line in host.lines)
    assert told(host) == snapshot(name="made")

    host.offer("tiny", "1.1")
    host.offer("small", "2.0", index="others")
    host.require("tiny==1.1", "small==2.0")
    assert set_up(host)
    assert (installed(host, "tiny"), installed(host, "small")) == ("1.1", "2.0")
    assert any("small==2.0" in line and host.index in line for line in host.lines)

    # Nothing is then taken from elsewhere: it would be another build.
    nowhere = "http://127.0.0.1:1/simple"
    (host.venv / ".index").write_text(nowhere)
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    host.offer("tiny", "1.2", index="others")
    host.require("tiny==1.2")
    assert not set_up(host, pip_index=nowhere)
    assert installed(host, "tiny") == "1.1"
    assert told(host) == snapshot(name="no answer")


def told(host: ExampleHost) -> list[str]:
    """What the host said, but that it still goes on."""
    return [line for line in host.lines if not line.startswith("pi: still ")]


def set_up(host: ExampleHost, **fields: object) -> bool:
    """Once; what it says goes to the host's lines, which begin anew."""
    host.lines.clear()
    member = host.member(**fields)
    return setup.set_up(
        [member], lambda _: Here(), say=host.lines.append, ask=None, requirements=host.requirements
    )


def installed(host: ExampleHost, name: str) -> str:
    """Its version, without a trace: bytecode that this leaves would hide one that is installed in the same second."""
    argv = [f"{host.venv}/bin/python", "-Bc", f"import {name}; print({name}.version)"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def calls_of_pip(host: ExampleHost) -> int:
    return len((host.home / "pip.log").read_text().splitlines())


def test_a_host_is_set_up_once(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    assert set_up(host)
    assert installed(host, "tiny") == "1.0"
    assert (host.venv / ".requirements").read_text() == packages.wanted(host.requirements)
    assert host.lines == snapshot(name="first")
    mark = host.venv / "mark"
    mark.touch()
    assert set_up(host)
    assert mark.exists()
    assert calls_of_pip(host) == 1
    assert host.lines == snapshot(name="second")


def test_other_requirements_go_into_the_environment_there_is(host: ExampleHost) -> None:
    set_up(host)
    mark = host.venv / "mark"
    mark.touch()
    host.offer("tiny", "1.1")
    host.require("tiny==1.1")
    assert set_up(host)
    assert installed(host, "tiny") == "1.1"
    assert mark.exists()


def test_a_half_made_environment_is_made_anew(host: ExampleHost) -> None:
    set_up(host)
    mark = host.venv / "mark"
    mark.touch()
    (host.venv / ".installing").touch()  # a pip that was killed
    (host.venv / ".requirements").unlink()
    assert set_up(host)
    assert not mark.exists()
    assert installed(host, "tiny") == "1.0"

    (host.venv / "bin" / "python").unlink()
    assert set_up(host)
    assert installed(host, "tiny") == "1.0"


def test_another_index_is_another_environment(host: ExampleHost) -> None:
    """`torch==2.13.0` is satisfied by a build without CUDA, and pip would leave it there."""
    set_up(host)
    host.offer("tiny", "1.0", {"tiny.py": "version = 'with CUDA'\n"}, index="cuda")
    assert set_up(host, pip_index=f"file://{host.home}/cuda")
    assert installed(host, "tiny") == "with CUDA"


def test_what_the_named_index_lacks_comes_from_where_pip_looks_by_itself(host: ExampleHost) -> None:
    host.offer("small", "2.0", index="others")
    host.require("tiny==1.0", "small==2.0")
    assert set_up(host)
    assert (installed(host, "tiny"), installed(host, "small")) == ("1.0", "2.0")
    assert any("small==2.0" in line and host.index in line for line in host.lines)


def test_a_failing_pip_is_one_line_and_the_next_try_goes_on(
    host: ExampleHost, snapshot: SnapshotAssertion
) -> None:
    host.require("tiny==9.9")
    assert not set_up(host)
    assert "tiny==9.9" in host.lines[-2]
    assert host.lines == snapshot
    assert not (host.venv / ".requirements").exists()
    mark = host.venv / "mark"
    mark.touch()
    host.offer("tiny", "9.9")
    assert set_up(host)
    assert mark.exists()
    assert installed(host, "tiny") == "9.9"


def test_a_python_that_is_too_old_or_has_no_venv_is_told_with_what_to_install(
    host: ExampleHost, snapshot: SnapshotAssertion
) -> None:
    for version in range(10, 15):
        host.program(f"python3.{version}", "exit 1")
    host.program("python3", '[ "$1" = --version ] && echo "Python 3.9.2" || exit 1')
    assert not set_up(host)
    assert "3.9.2" in host.lines[0]
    old = host.lines[0]
    host.program("python3", "case $2 in *ensurepip*) exit 1 ;; *) exit 0 ;; esac")
    assert not set_up(host)
    assert "python3-venv" in host.lines[0]
    assert [old, host.lines[0]] == snapshot


def test_a_disk_without_room_says_so(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    host.program(
        "python3", 'case "$*" in *--clear*) echo "Error: [Errno 28] No space left on device"; exit 1 ;; esac'
    )
    assert not set_up(host)
    assert host.lines == snapshot


def test_an_interpreter_of_its_own_is_only_checked(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    set_up(host)
    python = str(host.venv / "bin" / "python")
    said: list[str] = []
    assert set_up(host, python=python, folder="elsewhere")
    said += host.lines
    host.require("tiny==1.1", "other==3; python_version < '3'")
    assert set_up(host, python=python, folder="elsewhere")
    said += host.lines
    host.require("missing==2")
    assert not set_up(host, python=python, folder="elsewhere")
    said += host.lines
    assert said == snapshot
    assert not set_up(host, python="/nowhere/python")
    assert "/nowhere/python" in host.lines[0]
    assert not (host.home / "elsewhere").exists()


@pytest.mark.parametrize(("cuda", "ready"), [("None", False), ("'13.0'", True)])
def test_a_gpu_needs_a_torch_with_cuda_and_importing_it_does_not(
    host: ExampleHost, cuda: str, ready: bool, snapshot: SnapshotAssertion
) -> None:
    files = {"torch/__init__.py": "raise SystemExit('slow')\n", "torch/version.py": f"cuda = {cuda}\n"}
    host.offer("torch", "2.0", files)
    host.require("torch==2.0")
    assert set_up(host)
    assert set_up(host, device="cuda:0") is ready
    assert host.lines == snapshot


def test_pip_does_not_outlive_its_driver(host: ExampleHost) -> None:
    """Two at once would install into each other's feet."""
    started = host.home / "started"
    os.mkfifo(never := host.home / "never")
    begins = f"echo $$ >{started}.new; mv {started}.new {started}; exec cat <>{never}"
    host.program("python3", f'case "$*" in *--clear*) {begins} ;; esac')
    program = (
        "from pathlib import Path; from pareto.hosts import setup; from pareto.hosts.way import Here\n"
        "from pareto.hosts.inventory import Member\n"
        "member = Member('pi', 'edge', 'local', '10.0.0.2')\n"
        f"setup.set_up([member], lambda _: Here(), say=print, ask=None, requirements=Path({str(host.requirements)!r}))"
    )
    driver = subprocess.Popen(
        [sys.executable, "-uc", program],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    while not started.exists():
        assert driver.poll() is None
        time.sleep(0.02)
    venv = psutil.Process(int(started.read_text()))
    driver.kill()
    driver.wait()
    try:
        until_s = time.monotonic() + CEILING_S
        while lives(venv):
            assert time.monotonic() < until_s
            time.sleep(0.02)
    finally:
        if lives(venv):
            venv.kill()


def lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def test_hosts_are_set_up_side_by_side_and_one_that_fails_holds_up_none(
    host: ExampleHost, venv: Path, snapshot: SnapshotAssertion
) -> None:
    """No environment is made before both of them have begun to."""
    begun = [f"{host.home}/{folder}/begun" for folder in ("one", "two")]
    turns = f'touch "${{4%/*}}/begun"; until [ -e {begun[0]} -a -e {begun[1]} ]; do sleep 1; done'
    copy = f'mkdir -p "$4" && cp -a {venv}/. "$4"'
    host.program("python3", f'case "$*" in *--clear*) {turns}; {copy} ;; esac')

    def open_way(member: Member) -> Way:
        if member.name == "gone":
            raise Unreachable("gone (pi@10.0.0.9) does not answer")
        return Here()

    members = [host.member(name="gone"), host.member(folder="one"), host.member(name="gpu", folder="two")]
    assert not setup.set_up(
        members, open_way, say=host.lines.append, ask=None, requirements=host.requirements
    )
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
            lambda _: Here(),
            say=host.lines.append,
            ask=None if password is None else ask,
            requirements=host.requirements,
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

    def test_where_sudo_asks_nothing_nobody_is_asked(self, host: ExampleHost) -> None:
        (host.home / "free").touch()
        assert self.set_up(host, "unused") == (True, [])

    def test_without_a_terminal_the_command_is_printed(self, host: ExampleHost) -> None:
        done, _ = self.set_up(host, None)
        assert not done
        command = host.lines[0].partition("run there: ")[2].split()
        assert command[:2] == ["sudo", "sh"]
        assert Path(command[2]).read_text() == privileged.install_script("pi")
        assert Path(command[3]).read_bytes() == privileged.archive()

    def test_an_older_program_is_replaced(self, host: ExampleHost) -> None:
        (host.home / "digest").write_text("older\n")
        (host.home / "free").touch()
        assert self.set_up(host, None)[0]
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


def test_tasks_that_take_too_long_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is up when two of the three have been waited for."""
    now_s = iter([0.0, 0.0, 0.0, CEILING_S])
    monkeypatch.setattr(setup, "time", SimpleNamespace(monotonic=now_s.__next__))
    forever = threading.Event()
    assert setup.side_by_side([lambda: 1, forever.wait, lambda: 3], CEILING_S) == [1, None, 3]
    forever.set()


def test_what_a_task_raises_is_raised(host: ExampleHost) -> None:
    with pytest.raises(TestbedError):
        setup.side_by_side([lambda: setup.look(host.member(), _Refusing(), print)])


class _Refusing(Here):
    def run(self, *arguments: object, **named: object) -> None:  # type: ignore[override]
        raise TestbedError("no")
