"""What a command needs of this machine before anything is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pareto.commands import needs
from pareto.hosts.local import rights
from tests import REPOSITORY
from tests.less_than_root import container
from tests.unit.test_cli import ran

RUN = "--model mobilenetv2 --netem lte"
BUILDS = f"""
{RUN}
run {RUN}
{RUN} --testbed local
run {{sweep}}
doctor --link lte
doctor --link=lte
partitions alexnet --times
"""
BUILDS_NOT = f"""
--help
--version
advise results/x --latency 1ms
compare a b
report results/x
partitions all
netem list
netem
doctor
hosts list --testbed lab.yaml
test
test -k run
{RUN} --dry-run
run {RUN} --help
{RUN} --testbed lab.yaml
{RUN} --testbed=simulated
doctor --link lte --testbed lab.yaml
partitions alexnet --times --testbed simulated
--install-completion
run {{lab}}
run nothing.yaml
--resume {{folder}}
--resume nothing
"""


@pytest.mark.parametrize("arguments", [*BUILDS.split("\n")[1:-1], *BUILDS_NOT.split("\n")[:-1]])
def test_what_builds_the_local_testbed_and_what_does_not(arguments: str, tmp_path: Path) -> None:
    sweep, lab, folder = (tmp_path / name for name in ("sweep.yaml", "elsewhere.yaml", "run"))
    sweep.write_text("model: alexnet\nnetem: lte\n")
    lab.write_text("model: alexnet\ntestbed: 'lab.yaml'  # two hosts\n")
    folder.mkdir()
    (folder / "manifest.json").write_text('{"sweep": {"testbed": "lab.yaml"}}')
    words = arguments.format(sweep=sweep, lab=lab, folder=folder).split()
    assert needs.local_testbed(words) == (arguments in BUILDS.split("\n")[1:-1])


def test_a_run_that_goes_on_needs_what_it_was_begun_with(tmp_path: Path) -> None:
    for content in ('{"sweep": {"testbed": "local"}}', "", "[]", '{"sweep": 3}', "[" * 100_000, "\xff"):
        (tmp_path / "manifest.json").write_text(content, encoding="latin-1")
        assert needs.local_testbed(["--resume", str(tmp_path)]) == ("local" in content), content[:30]


def test_what_builds_no_testbed_needs_no_ssh_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rights, "SSHD", ("/nowhere/sshd",))
    monkeypatch.setattr(rights, "find", lambda: None)
    for arguments, package in ((RUN, "openssh-server\n"), ("advise results/x --latency 1ms", "")):
        monkeypatch.setattr(sys, "argv", ["needs", *arguments.split()])
        needs.main()
        assert capsys.readouterr().out == package


def test_a_container_that_refuses_the_testbed_says_so_before_anything_is_installed(tmp_path: Path) -> None:
    """One line that names what is missing, and the two ways out, from a clone in which nothing was started yet."""
    clone(tmp_path)
    place = container(user_namespaces=False)
    if subprocess.run([*place, "true"], check=False, capture_output=True).returncode:
        pytest.skip("forbids user namespaces in one of its own, and may make none")
    done = ran(*place, f"{tmp_path}/pareto.sh", *RUN.split(), PYTHON=sys.executable)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert "docker run --cap-add NET_ADMIN --cap-add SYS_ADMIN" in line
    assert "--testbed FILE" in line
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(("uv_succeeds", "installed_by"), [(True, ["uv"]), (False, ["uv", "pip"])])
def test_uv_installs_or_else_pip(tmp_path: Path, uv_succeeds: bool, installed_by: list[str]) -> None:
    """In a clone whose .venv is there and empty; uv and the interpreter in .venv note what they are asked for."""
    clone(tmp_path)
    log = tmp_path / "log"
    (tmp_path / "bin").mkdir()
    programs = {"bin/uv": "exit 0" if uv_succeeds else "exit 1", ".venv/bin/python": "exit 0"}
    for name, ending in programs.items():
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"""#!/bin/sh\necho "$0 $*" >>{log}\n{ending}\n""")
        program.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    done = ran(f"{tmp_path}/pareto.sh", "--version", PYTHON=sys.executable, PATH=path)
    assert done.code == 0
    calls = [line for line in log.read_text().splitlines() if " install " in line]
    assert ["uv" if "/bin/uv" in call else "pip" for call in calls] == installed_by
    assert "--torch-backend=auto" in calls[0]
    assert all("requirements.txt" in call for call in calls)
    assert len(done.err.splitlines()) == len(installed_by), "a line for each"
    assert log.read_text().splitlines()[-1].endswith("launcher.py pareto --version")


def clone(folder: Path) -> None:
    """What of a clone is needed before anything is installed."""
    for file in (
        *("pareto.sh", *(path.name for path in REPOSITORY.glob("requirements*.txt"))),
        *("pareto/__init__.py", "pareto/launcher.py", "pareto/commands/needs.py"),
    ):
        (folder / file).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / file, folder / file)
    shutil.copytree(REPOSITORY / "pareto/hosts", folder / "pareto/hosts")
