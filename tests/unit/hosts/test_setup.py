"""Setting this machine up as if it were a host: real virtual environments, real pip, an index in a folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pareto.hosts import packages, privileged, setup
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import Member
from pareto.hosts.way import Here, Unreachable, Way
from tests import REPOSITORY
from tests.unit.example_host import ExampleHost, example_host


@pytest.fixture(scope="module")
def empty_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_venv: Path) -> ExampleHost:
    return example_host(tmp_path, monkeypatch, empty_venv)


def test_an_environment_is_made_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = example_host(tmp_path, monkeypatch)
    monkeypatch.setattr(packages, "_QUIET_S", 2.0)
    assert set_up(host)
    assert installed(host, "tiny") == "1.0"
    assert any(line.startswith("pi: still making it (") for line in host.lines)


def set_up(host: ExampleHost, **fields: object) -> bool:
    """Once; what it says goes to the host's lines, which begin anew."""
    host.lines.clear()
    member = host.member(**fields)
    return setup.set_up(
        [member], lambda _: Here(), say=host.lines.append, ask=None, requirements=host.requirements
    )


def installed(host: ExampleHost, name: str) -> str:
    argv = [f"{host.venv}/bin/python", "-c", f"import {name}; print({name}.version)"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_a_host_is_set_up_once_and_then_again_in_a_moment(host: ExampleHost) -> None:
    assert set_up(host)
    assert installed(host, "tiny") == "1.0"
    assert (host.venv / ".requirements").read_text() == packages.wanted(host.requirements)
    assert host.lines == [
        f"pi: making {host.venv}",
        "pi: collecting tiny 1.0",
        "pi: installing 1 packages",
        "pi: set up",
    ]
    began = time.monotonic()
    assert set_up(host)
    assert time.monotonic() - began < 2
    assert host.lines == ["pi: set up already"]


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
    assert any("small==2.0 is not in file:" in line for line in host.lines)


def test_a_failing_pip_is_one_line_and_the_next_try_goes_on(host: ExampleHost) -> None:
    host.require("tiny==9.9")
    assert not set_up(host)
    assert host.lines[-2:] == [
        "pi: pip: No matching distribution found for tiny==9.9 (the next hosts setup goes on from here)",
        "pi: not set up: see above",
    ]
    assert not (host.venv / ".requirements").exists()
    host.offer("tiny", "9.9")
    assert set_up(host)
    assert not any("making" in line for line in host.lines)
    assert installed(host, "tiny") == "9.9"


def test_an_index_that_cannot_be_reached_is_told_as_such(host: ExampleHost) -> None:
    """And nothing is then taken from elsewhere: it would be another build."""
    host.offer("tiny", "1.0", index="others")
    os.environ["PIP_RETRIES"] = "1"
    try:
        assert not set_up(host, pip_index="http://127.0.0.1:1/simple")
    finally:
        del os.environ["PIP_RETRIES"]
    assert "the package index cannot be reached: [Errno 111] Connection refused" in host.lines[-2]
    assert not any("is not in" in line for line in host.lines)


def test_a_python_that_is_too_old_or_has_no_venv_is_told_with_what_to_install(host: ExampleHost) -> None:
    for version in range(10, 15):
        host.program(f"python3.{version}", "exit 1")
    host.program("python3", '[ "$1" = --version ] && echo "Python 3.9.2" || exit 1')
    assert not set_up(host)
    assert "Python 3.9.2 is too old: 3.10 or later is needed" in host.lines[0]
    host.program("python3", "case $2 in *ensurepip*) exit 1 ;; *) exit 0 ;; esac")
    assert not set_up(host)
    assert host.lines[0] == "pi: python3 has no venv there: sudo apt-get install python3-venv"


def test_a_disk_without_room_says_so(host: ExampleHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.program(
        "python3", 'case "$*" in *--clear*) echo "Error: [Errno 28] No space left on device"; exit 1 ;; esac'
    )
    assert not set_up(host)
    assert "pi: no virtual environment there: Error: [Errno 28] No space left on device" in host.lines


def test_an_interpreter_of_its_own_is_only_checked(host: ExampleHost) -> None:
    set_up(host)
    python = str(host.venv / "bin" / "python")
    assert set_up(host, python=python, folder="elsewhere")
    assert host.lines == ["pi: set up already"]
    host.require("tiny==1.1", "other==3; python_version < '3'")
    assert set_up(host, python=python, folder="elsewhere")
    assert host.lines[0] == f"pi: {python} has tiny 1.0, and ==1.1 is what is tested"
    host.require("missing==2")
    assert not set_up(host, python=python, folder="elsewhere")
    assert f"{python} lacks missing==2" in host.lines[0]
    assert not set_up(host, python="/nowhere/python")
    assert host.lines[0].startswith("pi: python: /nowhere/python does not work there: ")
    assert not (host.home / "elsewhere").exists()


@pytest.mark.parametrize(("cuda", "ready"), [("None", False), ("'13.0'", True)])
def test_a_gpu_needs_a_torch_with_cuda_and_importing_it_does_not(
    host: ExampleHost, cuda: str, ready: bool
) -> None:
    files = {"torch/__init__.py": "raise SystemExit('slow')\n", "torch/version.py": f"cuda = {cuda}\n"}
    host.offer("torch", "2.0", files)
    host.require("torch==2.0")
    assert set_up(host)
    assert set_up(host, device="cuda:0") is ready
    if not ready:
        assert "torch there is built without CUDA, and device is cuda:0" in host.lines[0]
        assert "(pip_index:)" in host.lines[0]
        assert "(python:)" in host.lines[0]


def test_pip_does_not_outlive_its_driver(host: ExampleHost) -> None:
    """Two at once would install into each other's feet."""
    started, late = host.home / "started", host.home / "late"
    host.program("python3", f'case "$*" in *--clear*) touch {started}; sleep 3; touch {late} ;; esac')
    program = (
        "from pathlib import Path; from pareto.hosts import setup; from pareto.hosts.way import Here\n"
        "from pareto.hosts.inventory import Member\n"
        "member = Member('pi', 'edge', 'local', '10.0.0.2')\n"
        f"setup.set_up([member], lambda _: Here(), say=print, ask=None, requirements=Path({str(host.requirements)!r}))"
    )
    driver = subprocess.Popen(
        [sys.executable, "-uc", program],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert driver.stdout is not None
    while not started.exists():
        assert driver.poll() is None
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    time.sleep(5)
    assert not late.exists()


def test_hosts_are_set_up_side_by_side_and_one_that_fails_holds_up_none(host: ExampleHost) -> None:
    def open_way(member: Member) -> Way:
        if member.name == "gone":
            raise Unreachable("gone (pi@10.0.0.9) does not answer")
        return Here()

    members = [host.member(name="gone"), host.member(folder="one"), host.member(name="gpu", folder="two")]
    assert not setup.set_up(
        members, open_way, say=host.lines.append, ask=None, requirements=host.requirements
    )
    assert "gone: not reached: gone (pi@10.0.0.9) does not answer" in host.lines
    assert host.lines[-2:] == ["pi: set up", "gpu: set up"]
    making = [
        host.lines.index(f"{name}: making {host.home}/{at}/venv")
        for name, at in (("pi", "one"), ("gpu", "two"))
    ]
    assert max(making) < min(i for i, line in enumerate(host.lines) if "collecting" in line)


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

    def test_the_password_is_asked_for_once_and_is_in_no_argument(self, host: ExampleHost) -> None:
        assert self.set_up(host, "secret") == (True, ["pi: password of pi for sudo there, once: "])
        assert "pi: installed the program that shapes the link" in host.lines
        assert "secret" not in (host.home / "asked").read_text()
        assert not list((host.home / ".pareto").glob("*.tar"))
        assert self.set_up(host, "secret") == (True, [])
        assert host.lines == ["pi: set up already"]

    def test_a_wrong_password_is_said_and_the_packages_go_on(self, host: ExampleHost) -> None:
        assert self.set_up(host, "wrong") == (False, ["pi: password of pi for sudo there, once: "])
        assert "not installed: sudo: 1 incorrect password attempt" in host.lines[0]
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

    def test_a_line_of_sudoers_without_effect_is_told(self, host: ExampleHost) -> None:
        (host.home / "free").touch()
        (host.home / "later").touch()  # a line that comes after ours and asks for a password
        assert not self.set_up(host, None)[0]
        assert "/etc/sudoers.d/pareto has no effect" in host.lines[0]

    def test_without_sudo(self, host: ExampleHost, monkeypatch: pytest.MonkeyPatch) -> None:
        (host.home / "bin" / "sudo").unlink()
        for name in ("cat", "mkdir", "rm"):
            (host.home / "bin" / name).symlink_to(str(shutil.which(name)))
        monkeypatch.setenv("PATH", f"{host.home}/bin")
        self.set_up(host, None)
        assert "there is no sudo, by which the link is shaped" in host.lines[0]


def test_tasks_that_take_too_long_are_left(host: ExampleHost) -> None:
    forever = threading.Event()
    assert setup.side_by_side([lambda: 1, lambda: forever.wait(9), lambda: 3], 0.2) == [1, None, 3]
    forever.set()
    with pytest.raises(TestbedError):
        setup.side_by_side([lambda: setup.look(host.member(), _Refusing(), print)])


class _Refusing(Here):
    def run(self, *arguments: object, **named: object) -> None:  # type: ignore[override]
        raise TestbedError("no")
