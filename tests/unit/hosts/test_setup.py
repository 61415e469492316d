"""Setting this machine up as if it were hosts: by the real venv and pip, which is deep, and by a stand-in for pip."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import Connection, ThisMachine, Unreachable
from pareto.hosts.inventory import HostEntry
from pareto.hosts.setup import checkup, finding, packages, privileged
from pareto.hosts.setup import hosts as setup
from pareto.hosts.setup.finding import REQUIREMENTS
from tests import REPOSITORY
from tests.program import ended, wait_until
from tests.unit import checkup_facts
from tests.unit.example_host import ExampleHost, example_host
from tests.unit.hosts.conftest import hastened

CEILING_S = 60.0
"""Against hanging; nothing here takes that long."""


@pytest.mark.deep
def test_by_venv_and_pip(
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


def reach(member: HostEntry) -> Connection:
    """This machine in place of every host but one."""
    if member.name == "gone":
        raise Unreachable("gone (pi@10.0.0.9) does not answer")
    return ThisMachine()


def told(host: ExampleHost) -> list[str]:
    """What the host said, but that it still goes on."""
    return [line for line in host.lines if not line.startswith("pi: still ")]


def set_up(host: ExampleHost, *, engines: bool = False, **fields: object) -> bool:
    """Once; what it says goes to the host's lines, which begin anew."""
    host.lines.clear()
    member = host.member(**fields)
    return setup.set_up(
        [member], lambda _: ThisMachine(), say=host.lines.append, ask=None, with_engines=engines
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
    assert (host.venv / ".requirements").read_text() == finding.digest(finding.REQUIREMENTS.read_bytes())
    assert host.lines == snapshot(name="first")
    mark = host.venv / "mark"
    mark.touch()
    assert set_up(host)
    assert mark.exists()
    assert calls_of_pip(host) == 1
    assert host.lines == snapshot(name="second")
    host.offer("tiny", "1.1")
    host.require("tiny==1.1")
    assert set_up(host)
    assert installed(host, "tiny") == "1.1"
    assert mark.exists(), "other requirements go into the environment that there is"
    # A half-made environment is made anew.
    (host.venv / ".installing").touch()  # a pip that was killed
    (host.venv / ".requirements").unlink()
    assert set_up(host)
    assert not mark.exists()
    assert installed(host, "tiny") == "1.1"
    (host.venv / "bin" / "python").unlink()
    assert set_up(host)
    assert installed(host, "tiny") == "1.1"


def test_what_engines_need_is_installed_where_it_is_asked_for(
    host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    wanted = host.home / "requirements-onnx.txt"
    wanted.write_text("# Of engines.\nonnxruntime==1.0\nonnx==1.0\n")
    monkeypatch.setattr(finding, "OF_ENGINES", wanted)
    for name in ("onnxruntime", "onnx"):
        host.offer(name, "1.0")
    set_up(host)
    assert not (host.venv / ".requirements-onnx").exists()
    assert set_up(host, engines=True)
    assert (installed(host, "onnx"), installed(host, "tiny")) == ("1.0", "1.0")
    assert set_up(host, engines=True)
    assert calls_of_pip(host) == 2, "once each"
    host.offer("onnx", "1.1")
    wanted.write_text("onnxruntime==1.0\nonnx==1.1\n")
    assert set_up(host, engines=True)
    assert installed(host, "onnx") == "1.1"
    monkeypatch.setattr(finding, "REQUIREMENTS", REQUIREMENTS)
    assert not set_up(host, engines=True, python=sys.executable)
    assert host.lines == snapshot


def test_a_gpu_has_another_build_of_onnx_runtime() -> None:
    lines = {device: finding.of_engines(device).decode() for device in ("cpu", "cuda:0")}
    assert "onnxruntime-gpu==" in lines["cuda:0"] and "\nonnxruntime==" not in lines["cuda:0"]
    assert lines["cuda:0"].replace("-gpu==", "==") == lines["cpu"]


def test_what_lies_where_the_environment_is_to_be_is_the_user_s(host: ExampleHost) -> None:
    """But an empty folder."""
    for name in ("environment", "file", "link", "empty"):
        (host.home / name).mkdir()
    (host.home / "elsewhere").mkdir()
    (host.home / "elsewhere" / ".index").touch()
    (host.home / "environment" / "venv").mkdir()
    (host.home / "environment" / "venv" / "pyvenv.cfg").write_text("mine")
    (host.home / "file" / "venv").write_text("mine")
    (host.home / "link" / "venv").symlink_to(host.home / "elsewhere")
    for name in ("environment", "file", "link"):
        before = sorted((host.home / name).rglob("*"))
        assert not set_up(host, folder=name)
        assert "hosts setup did not make it" in host.lines[0]
        assert sorted((host.home / name).rglob("*")) == before
    (venv := host.home / "empty" / "venv").mkdir()
    assert set_up(host, folder="empty")
    (venv / ".index").unlink()  # as when it was killed meanwhile
    assert set_up(host, folder="empty")


def test_another_index_is_another_environment(host: ExampleHost) -> None:
    """`torch==2.13.0` is satisfied by a build without CUDA, and pip would leave it there."""
    set_up(host)
    host.offer("tiny", "1.0", {"tiny.py": "version = 'with CUDA'\n"}, index="cuda")
    assert set_up(host, pip_index=f"file://{host.home}/cuda")
    assert installed(host, "tiny") == "with CUDA"
    # What the named index lacks comes from where pip looks by itself.
    host.offer("small", "2.0", index="others")
    host.require("tiny==1.0", "small==2.0")
    assert set_up(host)
    assert (installed(host, "tiny"), installed(host, "small")) == ("1.0", "2.0")
    assert any("small==2.0" in line and host.index in line for line in host.lines)


def test_a_failing_pip_is_said_and_the_next_goes_on(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
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


NO_ENVIRONMENT = {
    "3.9.2": '[ "$1" = --version ] && echo "Python 3.9.2" || exit 1',
    "python3-venv": 'case "$*" in *ensurepip*) exit 1 ;; *) exit 0 ;; esac',
    "No space left": 'case "$*" in *--clear*) echo "Error: [Errno 28] No space left"; exit 1 ;; esac',
}


def test_why_no_environment_can_be_made_is_said(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    for version in range(10, 15):
        host.program(f"python3.{version}", "exit 1")
    for named, script in NO_ENVIRONMENT.items():
        host.program("python3", script)
        assert not set_up(host)
        assert named in host.lines[-2]
        assert host.lines == snapshot(name=named)


def test_an_interpreter_of_its_own_is_only_checked(
    host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    set_up(host)
    host.venv.parent.rename(host.home / "theirs")
    monkeypatch.setattr(finding, "REQUIREMENTS", REQUIREMENTS)
    assert set_up(host, python=sys.executable)
    assert not host.venv.exists()
    assert host.lines == snapshot(name="complete")
    python = str(host.home / "theirs" / "venv" / "bin" / "python")
    assert not set_up(host, python=python)
    assert f"{python} lacks torch" in host.lines[0]
    # Only root shapes by itself.
    assert [line.replace(", pyroute2", "") for line in host.lines] == snapshot(name="packages are missing")
    assert not set_up(host, python="/nowhere/python")
    assert "/nowhere/python" in host.lines[0]
    other = {**checkup_facts.pi()["packages"], "torch": "2.12.1"}
    monkeypatch.setattr(checkup, "ask", lambda *_: checkup_facts.pi(packages=other))
    assert set_up(host, python="/opt/python")
    assert "2.12.1" in host.lines[0]
    assert host.lines == snapshot(name="another torch")


def test_a_gpu_needs_cuda_and_importing_torch_does_not(
    host: ExampleHost, snapshot: SnapshotAssertion
) -> None:
    for version, cuda, ready in (("2.0", "None", False), ("2.1", "'13.0'", True)):
        files = {"torch/__init__.py": "raise SystemExit('slow')\n", "torch/version.py": f"cuda = {cuda}\n"}
        host.offer("torch", version, files)
        host.require(f"torch=={version}")
        assert set_up(host)
        assert set_up(host, device="cuda:0") is ready
        assert host.lines == snapshot(name=cuda)


def test_pip_does_not_outlive_its_driver(host: ExampleHost) -> None:
    """Two at once would install into each other's feet."""
    started = host.home / "started"
    os.mkfifo(never := host.home / "never")
    begins = f"echo $$ >{started}.new; mv {started}.new {started}; exec cat <>{never}"
    host.program("python3", f'case "$*" in *--clear*) {begins} ;; esac')
    program = f"""
from pathlib import Path
from pareto.hosts.connection import ThisMachine
from pareto.hosts.inventory import HostEntry
from pareto.hosts.setup import finding, hosts
finding.REQUIREMENTS = Path({str(host.requirements)!r})
member = HostEntry('pi', 'edge', 'local', '10.0.0.2')
hosts.set_up([member], lambda _: ThisMachine(), say=print, ask=None)"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    argv = [sys.executable, "-uc", program]
    driver = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=environment)
    assert wait_until(lambda: started.exists() or driver.poll() is not None, CEILING_S)
    venv = psutil.Process(int(started.read_text()))
    driver.kill()
    driver.wait()
    try:
        assert ended([venv], CEILING_S)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            venv.kill()


def test_hosts_are_set_up_side_by_side_and_one_that_fails_holds_up_none(
    host: ExampleHost, venv: Path, snapshot: SnapshotAssertion
) -> None:
    """No environment is made before both of them have begun to."""
    begun = [f"{host.home}/{folder}/begun" for folder in ("one", "two")]
    turns = f'touch "${{4%/*}}/begun"; until [ -e {begun[0]} -a -e {begun[1]} ]; do sleep 1; done'
    copy = f'mkdir -p "$4" && cp -a {venv}/. "$4"'
    host.program("python3", f'case "$*" in *--clear*) {turns}; {copy} ;; esac')

    members = [host.member(name="gone"), host.member(folder="one"), host.member(name="gpu", folder="two")]
    assert not setup.set_up(members, reach, say=host.lines.append, ask=None)
    assert sorted(host.lines) == snapshot
    assert host.lines[-2:] == ["pi: set up", "gpu: set up"]


Sudo = Callable[[str | None], tuple[bool, list[str]]]


@pytest.fixture
def sudo(host: ExampleHost) -> Sudo:
    """Sets up by a sudo that takes the password `secret` and runs nothing as root: the machine's own is not asked."""
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

    def set_up(password: str | None) -> tuple[bool, list[str]]:
        host.lines.clear()
        ask = Mock(return_value=password)
        asks = None if password is None else ask
        done = setup.set_up([host.member()], lambda _: ThisMachine(), say=host.lines.append, ask=asks)
        return done, [call.args[0] for call in ask.call_args_list]

    return set_up


def test_the_password_is_asked_for_once(host: ExampleHost, sudo: Sudo, snapshot: SnapshotAssertion) -> None:
    """A wrong one is said and the packages go on; without a terminal the command is printed."""
    done, prompts = sudo("wrong")
    assert (done, len(prompts)) == (False, 1)
    assert "1 incorrect password attempt" in host.lines[0]
    assert host.lines == snapshot(name="wrong")
    assert (host.venv / ".requirements").exists()
    done, prompts = sudo("secret")
    assert (done, len(prompts)) == (True, 1)
    assert [*prompts, *host.lines] == snapshot(name="right")
    asked = (host.home / "asked").read_text()
    assert "secret" not in asked
    assert "-k -S" in asked  # it reads the password from us in any case
    assert not list((host.home / ".pareto").glob("*.tar"))
    assert sudo("secret") == (True, [])
    assert host.lines == ["pi: set up already"]
    (host.home / "digest").unlink()
    assert sudo(None) == (False, [])
    command = host.lines[0].partition("run there: ")[2].split()
    assert command[:2] == ["sudo", "sh"]
    assert Path(command[2]).read_text() == privileged.install_script("pi")
    assert Path(command[3]).read_bytes() == privileged.archive()


def test_an_older_program_is_replaced_and_nobody_asked_where_sudo_asks_nothing(
    host: ExampleHost, sudo: Sudo, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """A line of sudoers without effect is told, and that there is no sudo."""
    (host.home / "digest").write_text("older\n")
    (host.home / "free").touch()
    assert sudo("unused") == (True, [])
    assert (host.home / "digest").read_text().strip() == privileged.digest()
    (host.home / "later").touch()  # a line that comes after ours and asks for a password
    assert not sudo(None)[0]
    assert privileged.SUDOERS in host.lines[0]
    assert host.lines[0] == snapshot(name="later")
    (host.home / "bin" / "sudo").unlink()
    for name in ("cat", "mkdir", "rm"):
        (host.home / "bin" / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", f"{host.home}/bin")
    sudo(None)
    assert host.lines[0] == snapshot(name="no sudo")


def test_each_host_has_a_line_with_what_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """One that cannot be reached holds up none."""
    bare_host = example_host(tmp_path, monkeypatch)
    monkeypatch.setattr(finding, "REQUIREMENTS", REQUIREMENTS)
    members = [
        bare_host.member(name="ready", python=sys.executable, data_interface="eth0"),
        bare_host.member(name="new", role="server", ssh="gpu", device="cuda:0"),
        bare_host.member(name="between", role="middle", next_address="10.0.1.2", next_interface="eth1"),
    ]
    assert setup.list_hosts(members, lambda _: ThisMachine(), say=bare_host.lines.append, within_s=60)
    assert "\n".join(bare_host.lines) == snapshot(name="all")
    monkeypatch.setattr(finding, "REQUIREMENTS", bare_host.requirements)
    for names in (("ready",), ("gone", "ready")):
        bare_host.lines.clear()
        members = [bare_host.member(name=name) for name in names]
        done = setup.list_hosts(members, reach, say=bare_host.lines.append, within_s=60)
        assert done is ("gone" not in names)
    assert "\n".join(bare_host.lines) == snapshot(name="some")
