"""What `--testbed` and `--cluster` name, what rows call it, and what cannot be a fleet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pareto.checked_sweep import make_sweep, requested_sweep
from pareto.errors import UserError
from pareto.fleet import certificates
from pareto.fleet.processes import shares
from pareto.fleet.testbeds import (
    MOST_TESTBEDS,
    called,
    free,
    in_words,
    member_name,
    several,
    spelled_out,
    this_host,
)
from pareto.sweep import Sweep
from tests.unit.simulated.worlds import MODEL


def sweep(**options: str) -> Sweep:
    return requested_sweep(None, {"model": MODEL, **options})


def test_several_testbeds_each_have_a_name_of_their_own() -> None:
    assert several("local") == ("local",)
    assert several("lab.yaml, local,simulated:w.yaml*2") == (
        *("lab.yaml", "local"),
        *("simulated:w.yaml", "simulated:w.yaml"),
    )
    assert sweep(testbed="simulated*3").testbeds == {
        "simulated": "simulated",
        "simulated-2": "simulated",
        "simulated-3": "simulated",
    }
    assert sweep(testbed="local").testbeds == {"local": "local"}
    assert not sweep(testbed="local").fleet
    assert sweep(testbed="simulated*1").fleet
    assert free("lab", {"lab", "lab-2"}) == "lab-3"
    assert member_name("local", "pi") == "local@pi"
    assert member_name("simulated:/lab/w.yaml", "pi") == "simulated@pi:/lab/w.yaml"
    one, other = (member_name(f"/{folder}/lab.yaml", "pi") for folder in "ab")
    assert one != other
    assert called(one) == called(other) == "lab"
    assert in_words(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_two_machines_of_one_name_are_told_apart(tmp_path: Path) -> None:
    serial, installed, neither = (tmp_path / name for name in ("serial", "installed", "neither"))
    serial.write_bytes(b"100000003d1d1c36\0")
    installed.write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")
    first, copied = this_host((serial, installed)), this_host((neither, installed))
    assert first == this_host((serial, neither))
    assert first != copied
    assert {each.partition("/")[0] for each in (first, copied)} == {this_host((neither,))}
    assert "1000000" not in first
    assert called(member_name("local", first)) == "local"


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "a,b*2"
    file.touch()
    assert several(str(file)) == (str(file),)


HOSTS = (
    "pi: {role: edge, ssh: pi, data_address: 10.0.0.1}, gpu: {role: server, ssh: gpu, data_address: 10.0.0.2}"
)


def test_one_file_may_have_several_testbeds(tmp_path: Path) -> None:
    file = tmp_path / "labs.yaml"
    file.write_text(f"testbeds: {{one: {{hosts: {{{HOSTS}}}}}, two: {{hosts: {{{HOSTS}}}}}}}")
    both = {"one": f"{file}#one", "two": f"{file}#two"}
    assert sweep(testbed=str(file)).testbeds == both
    assert sweep(testbed=f"local, {file}").testbeds == {"local": "local", **both}
    assert not sweep(testbed=f"{file}#two").fleet
    assert sweep(testbed=f"{file}#two").testbed_name == "two"
    assert spelled_out("nosuch.yaml,local") == "nosuch.yaml,local"
    with pytest.raises(UserError, match="#one is there twice"):
        sweep(testbed=f"{file},{file}#one")
    assert member_name(f"{file}#two", "pi") == f"two@pi:{file}#two"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"testbed": f"simulated*{MOST_TESTBEDS + 1}"}, f"{MOST_TESTBEDS}"),
        ({"testbed": ","}, "at least one"),
        ({"testbed": "lab.yaml,lab.yaml"}, "lab.yaml is there twice"),
        ({"testbed": "lab.yaml,./lab.yaml"}, "lab.yaml is there twice"),
        ({"testbed": "simulated,local"}, "simulated"),
        ({"testbed": "simulated*2", "search": "yes"}, "--search"),
        ({"certificates": "there"}, "--cluster"),
        ({"certificates": "there", "testbed": "simulated*2"}, "--cluster"),
        ({"cluster": "lab"}, "tls://HOST"),
        ({"cluster": "tls://lab"}, "--certificates"),
        (
            {"cluster": "tls://lab", "certificates": "/there"},
            "cannot read the certificate /there/authority.pem",
        ),
        ({"cluster": "tcp://127.0.0.1:65536"}, "tls://HOST"),
        ({"cluster": "tcp://192.0.2.1:8786"}, "fleet certificates"),
        ({"cluster": "tcp://localhost:1", "certificates": "there"}, "tls://localhost:1"),
        ({"cluster": "tcp://127.0.0.1:1"}, "tls://127.0.0.1:1"),
    ],
)
def test_what_cannot_be_a_fleet_is_one_line(options: dict[str, str], names: str) -> None:
    with pytest.raises(UserError, match=re.escape(names)) as refused:
        sweep(**options)
    assert "\n" not in str(refused.value)


def test_a_cluster_has_its_own_testbeds(tmp_path: Path) -> None:
    certificates.write_certificates(folder := tmp_path / "lab")
    with pytest.raises(UserError, match="leave it out"):
        sweep(cluster="tls://lab", certificates=str(folder), testbed="lab.yaml")


def test_a_command_that_is_no_sweep_takes_one_testbed() -> None:
    with pytest.raises(UserError, match="name one testbed"):
        make_sweep({"model": MODEL, "testbed": "simulated*2"})


def test_local_testbeds_have_cores_apart_where_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    two = sweep(testbed="local,local")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5})
    assert shares(two, tmp_path) == {"local": [0, 1, 2], "local-2": [3, 4, 5]}
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    assert shares(two, tmp_path) == {}
