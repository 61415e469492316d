"""What `--testbed` and `--cluster` name, what rows call it, and what cannot be a fleet."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from pareto.driver.job import Job
from pareto.protocol.errors import UserError
from pareto.sweep.checked_sweep import make_sweep, requested_sweep
from pareto.sweep.sweep import Sweep
from pareto.sweep.testbeds import MOST_TESTBEDS, numbered, several, spelled_out
from tests.certificates import certificates
from tests.unit.refusals import refusal
from tests.unit.simulated.worlds import MODEL

WITH_DASK = pytest.mark.skipif(find_spec("distributed") is None, reason="needs distributed")


def sweep(**options: str) -> Sweep:
    return requested_sweep(None, {"model": MODEL, **options})


def test_several_testbeds_each_have_a_name_of_their_own(tmp_path: Path) -> None:
    assert several("local") == ("local",)
    found = several("lab.yaml, local,simulated:w.yaml*2")
    assert found == ("lab.yaml", "local", "simulated:w.yaml", "simulated:w.yaml")
    three = ("simulated", "simulated-2", "simulated-3")
    assert sweep(testbed="simulated*3").testbeds == dict.fromkeys(three, "simulated")
    assert sweep(testbed="local").testbeds == {"local": "local"}
    assert not sweep(testbed="local").fleet
    assert sweep(testbed="simulated*1").fleet
    assert numbered(["lab", "lab", "lab-2", "lab"]) == ["lab", "lab-2", "lab-2-2", "lab-3"]
    file = tmp_path / "a,b*2"
    file.touch()
    assert several(str(file)) == (str(file),)


def test_one_file_may_have_several_testbeds(tmp_path: Path) -> None:
    file = tmp_path / "labs.yaml"
    of = "{{role: {0}, ssh: {0}, data_address: 10.0.0.{1}}}".format
    hosts = f"{{hosts: {{pi: {of('edge', 1)}, gpu: {of('server', 2)}}}}}"
    file.write_text(f"testbeds: {{one: {hosts}, two: {hosts}}}")
    both = {"one": f"{file}#one", "two": f"{file}#two"}
    assert sweep(testbed=str(file)).testbeds == both
    assert sweep(testbed=f"local, {file}").testbeds == {"local": "local", **both}
    assert not sweep(testbed=f"{file}#two").fleet
    assert sweep(testbed=f"{file}#two").testbed_name == "two"
    assert spelled_out("nosuch.yaml,local") == "nosuch.yaml,local"
    with pytest.raises(UserError, match="#one is there twice"):
        sweep(testbed=f"{file},{file}#one")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"testbed": f"simulated*{MOST_TESTBEDS + 1}"}, f"{MOST_TESTBEDS}"),
        ({"testbed": ","}, "at least one"),
        ({"testbed": "lab.yaml,lab.yaml"}, "lab.yaml is there twice"),
        ({"testbed": "lab.yaml,./lab.yaml"}, "lab.yaml is there twice"),
        ({"testbed": "simulated,local"}, "simulated"),
        ({"testbed": "simulated*2", "search": "yes"}, "--search"),
        ({"tls_cert": "there"}, "--cluster"),
        ({"tls_key": "there", "testbed": "simulated*2"}, "--cluster"),
        ({"cluster": "lab"}, "tls://HOST"),
        ({"cluster": "tcp://127.0.0.1:1"}, "tls://HOST"),
        pytest.param({"cluster": "tls://lab"}, "--tls-cert", marks=WITH_DASK),
        pytest.param({"cluster": "tls://lab", "tls_cert": "/no.pem"}, "/no.pem", marks=WITH_DASK),
    ],
)
def test_what_cannot_be_a_fleet_is_one_line(options: dict[str, str], names: str) -> None:
    assert names in refusal(UserError, lambda: Job(sweep(**options), 0.0, dry_run=True))


def test_a_cluster_has_its_own_testbeds_and_what_is_no_sweep_takes_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name one testbed"):
        make_sweep({"model": MODEL, "testbed": "simulated*2"})
    pytest.importorskip("distributed")
    words = certificates(tmp_path / "lab")
    named = dict(zip(("tls_ca_file", "tls_cert", "tls_key"), words[1::2], strict=True))
    with pytest.raises(UserError, match="leave it out"):
        sweep(cluster="tls://lab", testbed="lab.yaml", **named)
    Path(named["tls_key"]).write_text("garbage")
    with pytest.raises(UserError, match="are no certificates"):
        Job(sweep(cluster="tls://lab", **named), 0.0, dry_run=True)
