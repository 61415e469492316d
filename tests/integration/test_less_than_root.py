"""The main job of those who are not root of this machine, for real: a user namespace of its own is all it takes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pareto.hosts.local.rights import OWN, ROOT
from tests.integration.test_sweep import only_run, rows_in, sound
from tests.less_than_root import USER, container, delegated_cgroup, needs_networks, share_of_a_quarter, user
from tests.program import LENIENT, descendants, ended, started, wait_until

pytestmark = [pytest.mark.integration, needs_networks, pytest.mark.usefixtures("nothing_left")]

NET = Path(__file__).parents[1] / "faults" / "net.py"
BUILD = """\
from pareto.hosts.local.testbed import open_local
bed = open_local()
bed.remotes["edge"].ship(b"weights", "blob")
print(bed.facts["rights"], flush=True)
"""
PYTHON = (sys.executable, "-B")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Of the ordinary user's; where pytest keeps its own, others may not look."""
    made = Path(tempfile.mkdtemp(dir=os.environ["TMPDIR"]))
    for path in (made, Path(shutil.copy(NET, made))):
        os.chown(path, USER, USER)
    yield made
    shutil.rmtree(made)


def remains(folder: Path) -> list[str]:
    """What is in the folder for temporary files beside the test's own."""
    return [path.name for path in folder.parent.iterdir() if path.name.startswith("pareto")]


DEEP = pytest.mark.deep


@pytest.mark.parametrize(
    ("who", "uid", "backends"), [(user, USER, "rpc,tcp"), pytest.param(container, 0, "tcp", marks=DEEP)]
)
def test_a_sweep(who: Callable[[], list[str]], uid: int, backends: str, folder: Path) -> None:
    job = f"--model {folder}/net.py:build --netem 10ms-100mbit --backend {backends} --points 1 --only --quick"
    where = f"--figures none --out {folder}/out"
    process = started(*who(), *PYTHON, "-m", "pareto", *job.split(), *where.split(), *LENIENT)
    out, err = process.communicate(timeout=280)
    rows, run = rows_in(folder / "out"), only_run(folder / "out")
    assert sorted(row["backend"] for row in rows) == backends.split(","), out + err
    for row in rows:
        assert sound(row), row["reason"]
        assert float(row["rtt_s"]) >= 0.0099  # a busy machine is late, never early
    session = json.loads((run / "manifest.json").read_text())["sessions"][0]
    assert session["testbed"]["rights"] == OWN
    (shaping,) = session["shaping"].values()
    if session["testbed"]["shaper"] == "relay":
        assert not shaping["relay"]["real_time"]
        assert "no right to real-time scheduling" in " ".join(out.split())
    assert {path.stat().st_uid for path in run.rglob("*")} == {uid}
    assert remains(folder) == []


@pytest.mark.parametrize(("more", "rights"), [((), OWN), (("net_admin", "sys_admin"), ROOT)])
def test_a_containers_root_has_a_testbed(more: tuple[str, ...], rights: str, folder: Path) -> None:
    """With the capabilities that Docker gives, in a user namespace; with those that it names, without."""
    process = started(*container(more=more), *PYTHON, "-c", f"{BUILD}bed.close()")
    assert process.communicate(timeout=240)[0] == f"{rights}\n"
    assert remains(folder) == []


@pytest.mark.parametrize(
    "victim", ["driver", pytest.param("unshare --user", marks=DEEP), "pareto.hosts.local"]
)
def test_all_ends_with_its_driver_and_with_its_builder_and_is_put_back(victim: str, folder: Path) -> None:
    process = started(*user(), *PYTHON, "-c", f"{BUILD}import time\ntime.sleep(600)\n")
    assert process.stdout is not None
    assert process.stdout.readline() == f"{OWN}\n"
    family = descendants(process.pid)
    if victim == "driver":
        process.kill()
    else:
        next(it for it in descendants(process.pid, victim) if "nsenter" not in it.cmdline()).kill()
    assert ended(family)
    process.kill()
    process.communicate()
    repair = started(*user(), *PYTHON, "-m", "pareto", "doctor", "--repair")
    repair.communicate(timeout=240)
    assert repair.returncode == 0
    assert wait_until(lambda: remains(folder) == [])


def test_a_share_of_a_core_where_a_cgroup_is_delegated_and_one_line_where_none_is(folder: Path) -> None:
    with delegated_cgroup() as enter:
        assert share_of_a_quarter([*enter, *user()]) == 0.25
    job = f"--model {folder}/net.py:build --netem 10ms-100mbit --edge-cpu 0.5 --out {folder}/out"
    process = started(*user(), *PYTHON, "-m", "pareto", *job.split())
    _, err = process.communicate(timeout=280)
    assert process.returncode == 2
    (line,) = err.splitlines()
    assert "--edge-cpu" in line and "systemd-run" in line
