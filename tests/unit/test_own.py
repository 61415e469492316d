"""What installed packages offer beside a user's files: found by its name, whatever its kind; one line for what is not.
A backend, a data set and an engine of a package stand in the tests of these."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from pareto.hosts import inventory
from pareto.hosts.host import TestbedError
from pareto.protocol import own
from pareto.protocol.errors import UserError
from pareto.remote.backends import registry as backends
from pareto.remote.codecs import registry as codecs
from pareto.remote.codecs.own import Cut, bound
from pareto.sweep import dataset_names
from pareto.sweep.checked_sweep import make_sweep
from tests.unit.hosts.test_inventory import GOOD, write
from tests.unit.offered import example, installed
from tests.unit.refusals import refusal

KINDS = (backends.OWN, codecs.OWN, dataset_names.OWN, inventory.METER)
PLUG = "class Plug:\n    def read(self):\n        return 0.0, 5.0\n"


def test_for_what_is_built_in_packages_are_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "entry_points", lambda **_: pytest.fail("they were looked through"))
    own.Kind.offered.cache_clear()
    usual = {"backend": "tcp:4:a,rpc", "codec": "none,int8:channel+zstd", "dataset": "synthetic"}
    assert not make_sweep({"model": "m", "engine": "onnx,edge=compile", **usual}).own_backends


def test_a_codec_of_a_package_is_one_of_ones_own(tmp_path: Path) -> None:
    files = {"narrow.py": example("narrow.py", "docs/codecs.md"), "b.py": "class slim: ..."}
    with installed(tmp_path, files, codecs="slim = narrow:Narrow\nint8 = narrow:Narrow"):
        sweep = make_sweep({"model": "m", "codec": "slim,slim+zstd,int8"})
        assert sweep.codecs == ("slim", "slim+zstd:3", "int8") and sweep.coding[2].own is None
        (codec,) = bound(sweep.coding[1:2], [Cut.of("net", 1, "stem", (("float32", (1, 8, 4, 4)),))], 0)
        (sent,) = codec.for_cut(1).encode((torch.randn(1, 8, 4, 4),))
        assert sent.nbytes < 8 * 4 * 4
        assert refusal(ValueError, codecs.parse, "thin").endswith("path/to/file.py:Bottleneck, slim")
        both = make_sweep({"model": "m", "codec": f"slim,{tmp_path}/b.py:slim"})
        assert [each.text for each in both.coding] == ["narrow.Narrow", "b.slim"]
        assert both.codecs == ("slim", f"{tmp_path}/b.py:slim")
    assert codecs.parse("slim+zstd:3", {"slim"}).text == "slim+zstd:3", "a host knows what it was told"


def test_a_testbeds_file_names_a_meter_of_a_package(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD.replace("port: 2222", "meter: plug"))
    with installed(tmp_path / "site", {"plugs.py": PLUG}, meters="plug = plugs:Plug"):
        assert [host.meter for host in inventory.load(file).roles.values()] == ["plug", ""]
    with installed(tmp_path / "other", {}, meters="plug = gone:Plug"):
        assert "gone:Plug, lies in no Python file" in refusal(TestbedError, inventory.load, file)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.group)
def test_its_file_travels_and_the_rest_of_its_package_is_to_be_there(kind: own.Kind, tmp_path: Path) -> None:
    files = {"pack/__init__.py": "", "pack/base.py": PLUG, "pack/deep/__init__.py": "from ..base import Plug"}
    with installed(tmp_path, files, **{kind.group.removeprefix("pareto."): "plug = pack.deep:Plug"}):
        made = kind.own("plug")
        assert made is not None and kind.typed("plug") == made.text == made.name == "plug"
        made = made.shipped(lambda file, name: shutil.copyfile(file, tmp_path / name))
        assert made.maker(kind.what)().read() == (0.0, 5.0)
    Path(made.file).write_bytes(Path(made.file).read_bytes() + b"\n")  # which runs anew
    assert "No module named 'pack'" in refusal(UserError, made.maker, kind.what)


WRONG = {
    **dict.fromkeys(("gone:Plug", "math:Plug"), "lies in no Python file that can be read"),
    **dict.fromkeys(("gone.deep:Plug", "bad.deep:Plug", "no entry"), "cannot be found: "),
    "plugs:Socket": "has no function or class 'Socket': it has Plug",
    "plugs": "has no function or class ''",
}


@pytest.mark.parametrize("point", WRONG)
def test_what_a_package_has_no_such_thing_of_is_one_line(point: str, tmp_path: Path) -> None:
    with installed(tmp_path, {"plugs.py": PLUG, "bad/__init__.py": "1 / 0"}, meters=f"plug = {point}"):
        said = refusal(UserError, lambda: (made := inventory.METER.own("plug")) and made.maker("meter"))
    assert WRONG[point] in said and ("the meter plug" in said or "plugs.py" in said)
