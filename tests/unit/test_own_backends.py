"""A transport of one's own: what it is called, what is refused, how it travels, and that the document's works."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pareto.analysis import naming
from pareto.driver import manifest
from pareto.protocol.errors import BackendError, UserError
from pareto.protocol.own import Own
from pareto.remote.backends import base, registry
from pareto.sweep.checked_sweep import check_sweep, make_sweep
from pareto.testing.checks import CHECKS
from pareto.testing.ends import verdict
from tests.unit.backends.builders import refusal
from tests.unit.offered import example, installed


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(example("mine.py"))
    return file


@pytest.mark.parametrize("must", [must for must in CHECKS if "order" in must or "end of the far" in must])
def test_the_documents_example_does_what_each_must(mine: Path, must: str) -> None:
    assert verdict(f"{mine}:Transport", CHECKS[must]) == ""


def test_rows_call_it_by_file_and_class_and_a_run_keeps_where_it_lies(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mine.parent)
    sweep = make_sweep({"model": "alexnet", "backend": "tcp,mine.py:Transport,mine.py:Transport:b"})
    assert sweep.backends == ("tcp", f"{mine}:Transport", f"{mine}:Transport:b")
    assert sweep.backend_names == ("tcp", "mine.Transport", "mine.Transport:b")
    assert sweep.transports == ("tcp", "mine.Transport")
    assert sweep.own_backends == (Own("mine.Transport", str(mine), "Transport", str(mine)),)
    assert [registry.parse(name).transport for name in sweep.backend_names] == [
        *sweep.transports,
        "mine.Transport",
    ]
    assert [naming.transport(name) for name in sweep.backend_names[1:]] == ["mine.Transport"] * 2
    made = manifest.new_manifest(sweep, {}, {})
    assert made["sweep"]["backends"] == list(sweep.backends)
    store = SimpleNamespace(folder=mine.parent, manifest=lambda: made)
    manifest.check_same(store, sweep, {}, {})  # type: ignore[arg-type]
    mine.write_text(mine.read_text() + "# another text\n")
    assert "a backend's file said something else" in refusal(
        manifest.check_same, store, sweep, {}, {}, by=UserError
    )


def test_what_cannot_be_used_is_refused_in_one_line(mine: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "mine.py"
    other.parent.mkdir()
    other.write_text(mine.read_text())
    refused = {
        f"{tmp_path}/none.py:Transport": "there is no file",
        f"{mine}:Transport,{other}:Transport": "both have a backend mine.Transport: rename one file",
        "mine.py": "say what in the file makes the backend, as in mine.py:Transport",
        f"{mine}:Transport:a:b": "is no backend",
        "mine.Transport": "say which file has it",
    }
    for typed, words in refused.items():
        said = refusal(
            lambda text: check_sweep(make_sweep({"model": "alexnet", "backend": text})), typed, by=UserError
        )
        assert words in said and "\n" not in said, said
    simulated = {"model": "alexnet", "backend": f"{mine}:Transport", "testbed": "simulated", "netem": "wifi"}
    assert "sends nothing" in refusal(lambda: check_sweep(make_sweep(simulated)), by=UserError)
    sealed = {"model": "alexnet", "backend": f"{mine}:Transport", "secure": "tls"}
    assert "cannot encrypt" in refusal(make_sweep, sealed, by=UserError)


BAD = {
    "raise RuntimeError('no')": "no",
    "Transport = 5": "has no function or class 'Transport'",
    "class Transport:\n    serve = 1": "has no method serve",
    "def Transport():\n    return 1 / 0": "ZeroDivisionError",
}


@pytest.mark.parametrize("code", BAD)
def test_a_host_that_cannot_make_it_says_so_by_the_users_file(code: str, tmp_path: Path) -> None:
    file = tmp_path / "digest.py"
    file.write_text(code)
    said = refusal(base.load_own, [Own("mine.Transport", str(file), "Transport", "mine.py")], by=UserError)
    assert BAD[code] in said and "\n" not in said


def test_a_host_makes_it_once_however_often_it_connects(mine: Path) -> None:
    own = Own("mine.Transport", str(mine), "Transport", "mine.py")
    base.load_own([own])
    made = base.backend(own.name)
    base.load_own([own])
    assert base.backend(own.name) is made


def test_what_a_package_offers_travels_to_hosts_that_lack_it(tmp_path: Path) -> None:
    with installed(tmp_path, {"quick.py": example("mine.py")}, backends="quick = quick:Transport"):
        assert "gloo, quick" in refusal(registry.parse, "slow", by=ValueError)
        sweep = make_sweep({"model": "alexnet", "backend": "quick,quick:b"})
        assert sweep.backends == sweep.backend_names == ("quick", "quick:b")
        (own,) = sweep.own_backends
        made = manifest.new_manifest(sweep, {}, {})
        assert manifest.elsewhere(sweep, ["backend"]) == {"backend": "quick,quick:b"}
    assert made["own_backends"] == {"quick": own.digest()}
    refusal(registry.parse, "quick", by=ValueError)
    base.load_own([own.shipped(lambda file, name: shutil.copyfile(file, tmp_path / name))])
    assert registry.parse("quick:b").transport == "quick"
    assert base.backend("quick").serve("127.0.0.1", "a token").port
    registry.TOLD.clear()


def test_a_host_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no backend quack" in refusal(base.backend, "quack", by=BackendError)
    monkeypatch.setitem(sys.modules, "zmq", None)
    monkeypatch.delitem(sys.modules, "pareto.remote.backends.zmq", raising=False)
    assert "zmq needs the package pyzmq" in refusal(base.backend, "zmq", by=BackendError)
