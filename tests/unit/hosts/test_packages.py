"""The packages of a host, put on this machine: virtual environments made here, an index in a folder.

Once by the real venv and pip, which take long, and is deep; then by the stand-in for pip.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import ThisMachine
from pareto.hosts.setup import checkup, finding, packages
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


@pytest.mark.parametrize("kind", ["an environment", "a file", "a link to one", "an empty folder"])
def test_what_lies_where_the_environment_is_to_be_is_the_user_s(host: ExampleHost, kind: str) -> None:
    project = host.home / "project"
    venv = project / "venv"
    project.mkdir()
    if kind == "a file":
        venv.write_text("mine")
    elif kind == "a link to one":
        (elsewhere := host.home / "elsewhere").mkdir()
        (elsewhere / ".index").touch()
        venv.symlink_to(elsewhere)
    else:
        venv.mkdir()
        if kind == "an environment":
            (venv / "pyvenv.cfg").write_text("mine")
    before = sorted(project.rglob("*"))
    done = set_up(host, folder="project")
    assert done is (kind == "an empty folder")
    if not done:
        assert "hosts setup did not make it" in host.lines[0]
        assert sorted(project.rglob("*")) == before
    else:
        (venv / ".index").unlink()  # as when it was killed meanwhile
        assert set_up(host, folder="project")


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


NO_ENVIRONMENT = {
    "too old": ('[ "$1" = --version ] && echo "Python 3.9.2" || exit 1', "3.9.2"),
    "no venv": ('case "$*" in *ensurepip*) exit 1 ;; *) exit 0 ;; esac', "python3-venv"),
    "no room": (
        'case "$*" in *--clear*) echo "Error: [Errno 28] No space left"; exit 1 ;; esac',
        "No space left",
    ),
}


@pytest.mark.parametrize(("script", "named"), NO_ENVIRONMENT.values(), ids=NO_ENVIRONMENT)
def test_where_no_environment_can_be_made_it_is_said_why(
    host: ExampleHost, script: str, named: str, snapshot: SnapshotAssertion
) -> None:
    for version in range(10, 15):
        host.program(f"python3.{version}", "exit 1")
    host.program("python3", script)
    assert not set_up(host)
    assert named in host.lines[-2]
    assert host.lines == snapshot


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


def test_an_interpreter_with_another_torch_is_said(
    host: ExampleHost, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(finding, "REQUIREMENTS", REQUIREMENTS)
    other = {**checkup_facts.pi()["packages"], "torch": "2.12.1"}
    monkeypatch.setattr(checkup, "ask", lambda *_: checkup_facts.pi(packages=other))
    assert set_up(host, python="/opt/python")
    assert "2.12.1" in host.lines[0]
    assert host.lines == snapshot


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
        "from pathlib import Path; from pareto.hosts.setup import finding, hosts\n"
        "from pareto.hosts.connection import ThisMachine\n"
        "from pareto.hosts.inventory import HostEntry\n"
        "member = HostEntry('pi', 'edge', 'local', '10.0.0.2')\n"
        f"finding.REQUIREMENTS = Path({str(host.requirements)!r})\n"
        "hosts.set_up([member], lambda _: ThisMachine(), say=print, ask=None)"
    )
    driver = subprocess.Popen(
        [sys.executable, "-uc", program],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert wait_until(lambda: started.exists() or driver.poll() is not None, CEILING_S)
    venv = psutil.Process(int(started.read_text()))
    driver.kill()
    driver.wait()
    try:
        assert ended([venv], CEILING_S)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            venv.kill()
