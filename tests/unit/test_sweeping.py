"""What the main job tells of the hosts, and with what it goes on."""

from __future__ import annotations

import io
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto import profile_files, spec, sweeping
from pareto.crew import Crew
from pareto.errors import UserError
from pareto.hosts.session import SessionLost
from pareto.link.probe import Reading
from pareto.plan import ModelFacts
from pareto.prepare import Artifact, Prepared
from pareto.spec import Sweep
from pareto.store import Store
from partitions.recipe import Recipe

LAB = """\
hosts:
  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2, threads: 4, folder: /srv/pareto}
  gpu: {role: server, ssh: local, data_address: 192.168.7.1, device: "cuda:0"}
"""


@pytest.fixture
def out() -> Console:
    return Console(file=io.StringIO(), width=200, highlight=False)


def said(out: Console) -> list[str]:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    path = tmp_path / "lab.yaml"
    path.write_text(LAB)
    return spec.sweep({"model": "alexnet", "netem": "200ms-5mbit", "testbed": str(path)})


TORCH = {"torch": version("torch").partition("+")[0], "torchvision": version("torchvision").partition("+")[0]}


def test_the_same_versions_are_not_worth_a_word(out: Console) -> None:
    builds = {name: f"{found}+cu126" for name, found in TORCH.items()}
    sweeping._tell_versions(out, {"edge": TORCH, "server": builds})
    assert said(out) == []


def test_versions_that_differ_are_told_with_the_drivers(out: Console, snapshot: SnapshotAssertion) -> None:
    sweeping._tell_versions(out, {"edge": TORCH, "server": {**TORCH, "torch": "1.9.1+cu102"}})
    (line,) = said(out)
    edge, server, driver = line.split(", ")
    assert TORCH["torch"] in edge
    assert "1.9.1+cu102" in server
    assert version("torch") in driver
    assert [
        edge.replace(TORCH["torch"], "OURS"),
        server,
        driver.replace(version("torch"), "THE DRIVER'S"),
    ] == snapshot


def test_hosts_that_agree_against_the_driver(out: Console, snapshot: SnapshotAssertion) -> None:
    old = {**TORCH, "torchvision": "0.10.1"}
    sweeping._tell_versions(out, {"edge": old, "server": old})
    (line,) = said(out)
    assert line.replace(version("torchvision"), "THE DRIVER'S") == snapshot


def test_what_of_a_testbed_file_decides(sweep: Sweep) -> None:
    assert sweeping._hosts(sweep) == {
        "edge": {
            "name": "pi",
            "ssh": "pi@pi.local",
            "data_address": "192.168.7.2",
            "data_interface": "",
            "next_address": "",
            "next_interface": "",
            "device": "cpu",
            "threads": 4,
            "python": "",
        },
        "server": {
            "name": "gpu",
            "ssh": "local",
            "data_address": "192.168.7.1",
            "data_interface": "",
            "next_address": "",
            "next_interface": "",
            "device": "cuda:0",
            "threads": 1,
            "python": "",
        },
    }
    assert sweeping._hosts(sweep.model_copy(update={"testbed": "local"})) is None


def begun(folder: Path, sweep: Sweep) -> Store:
    return Store.create(folder, "run", sweeping._manifest(sweep, {}, sweeping._networks(sweep, 1)))


def check(store: Store, sweep: Sweep) -> None:
    sweeping._check_same(store, sweep, {}, sweeping._networks(sweep, 1))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("threads: 4", "threads: 2"),
        ("cuda:0", "cuda:1"),
        ("pi@pi.local", "pi@other.local"),
        ("192.168.7.1", "192.168.7.9"),
        ("  pi:", "  raspberry:"),
    ],
)
def test_a_run_does_not_go_on_with_other_hosts(sweep: Sweep, tmp_path: Path, was: str, now: str) -> None:
    store = begun(tmp_path, sweep)
    file = Path(sweep.testbed)
    file.write_text(LAB.replace(was, now))
    with pytest.raises(UserError) as refused:
        check(store, sweep)
    assert str(store.folder) in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_run_goes_on_with_the_same_hosts_however_they_are_written(sweep: Sweep, tmp_path: Path) -> None:
    store = begun(tmp_path, sweep)
    check(store, sweep)
    lines = LAB.replace("/srv/pareto", "/mnt/pareto").splitlines()
    Path(sweep.testbed).write_text("\n".join(["# turned round", lines[0], lines[2], lines[1]]))
    check(store, sweep)


def test_a_run_of_the_local_testbed_does_not_go_on_elsewhere(
    sweep: Sweep, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    store = begun(tmp_path, sweep.model_copy(update={"testbed": "local"}))
    with pytest.raises(UserError) as refused:
        check(store, sweep)
    assert sweep.testbed in str(refused.value)
    assert str(refused.value) == snapshot


def test_networks_are_told_apart_by_their_profiles_in_order(sweep: Sweep) -> None:
    asked = sweep.model_copy(update={"netems": ("wifi", "wifi+lte", "lte+lte")})
    networks = sweeping._networks(asked, 2)
    assert {name: [it.name for it in network] for name, network in networks.items()} == {
        "wifi": ["wifi", "wifi"],
        "wifi+lte": ["wifi", "lte"],
        "lte": ["lte", "lte"],
    }
    assert set(sweeping._records(networks)) == {"wifi", "lte"}


def test_profiles_of_one_name_must_be_one(sweep: Sweep, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    file = tmp_path / "wifi.yaml"
    file.write_text("edge_to_server: {delay: 9ms}\n")
    asked = sweep.model_copy(update={"netems": ("wifi", str(file))})
    with pytest.raises(UserError) as refused:
        sweeping._networks(asked, 1)
    assert str(file) in str(refused.value)
    assert str(refused.value) == snapshot


MADE = {"weights_digest": "w", "graph_digest": "g", "source_digest": None, "dataset": {"inputs": {"1": [4]}}}


OTHER = {
    "weights_digest": "x",
    "graph_digest": "x",
    "source_digest": "x",
    "dataset": {"inputs": {"1": [8]}},
}


@pytest.mark.parametrize("what", OTHER)
def test_a_run_does_not_go_on_with_another_model(
    sweep: Sweep, tmp_path: Path, what: str, snapshot: SnapshotAssertion
) -> None:
    networks = sweeping._networks(sweep, 1)

    def prepared(**manifest: Any) -> dict[str, Prepared]:
        artifact = Artifact(Path("weights"), "w")
        return {"net": Prepared("net", Recipe("net"), artifact, None, {}, "g", ModelFacts((), 0.1), manifest)}

    store = Store.create(tmp_path, "run", sweeping._manifest(sweep, prepared(**MADE), networks))
    as_tuple = {**MADE, "dataset": {"inputs": {"1": (4,)}}}
    sweeping._check_same(store, sweep, prepared(**as_tuple), networks)
    with pytest.raises(UserError) as refused:
        sweeping._check_same(store, sweep, prepared(**{**MADE, what: OTHER[what]}), networks)
    assert str(refused.value) == snapshot


@dataclass
class Linked:
    """In place of a crew that measures the links beneath."""

    link: Reading

    def bare_links(self) -> dict[str, Reading]:
        return {"edge-server": self.link}


def told(out: Console, sweep: Sweep, link: Reading) -> dict[str, Any]:
    networks = {name: (profile_files.load(name),) for name in ("none", *sweep.netems)}
    return sweeping._bare_links(out, cast(Crew, Linked(link)), sweep, networks)


def test_the_link_itself_is_told_and_kept(out: Console, sweep: Sweep, snapshot: SnapshotAssertion) -> None:
    kept = told(out, sweep, Reading(0.0004, 94e6, 93e6, message_s=0.1))
    assert kept == {"edge-server": {"rtt_s": 0.0004, "rate_bps": 94e6, "rate_back_bps": 93e6}}
    assert said(out) == snapshot


def test_a_profile_that_the_link_cannot_follow_is_told_before_it_is_tried(
    out: Console, sweep: Sweep, snapshot: SnapshotAssertion
) -> None:
    told(out, sweep, Reading(0.03, 3e6, 3e6))
    _, *told_of = said(out)
    assert len(told_of) == 2
    assert all("200ms-5mbit" in line for line in told_of)
    assert said(out) == snapshot


def test_the_tolerance_that_was_asked_for_counts(out: Console, sweep: Sweep) -> None:
    told(out, sweep.model_copy(update={"tolerance": 0.5, "rtt_tolerance": 0.5}), Reading(0.03, 3e6, 3e6))
    assert len(said(out)) == 1


def test_what_a_lost_host_cannot_tell_is_left_out() -> None:
    def lost() -> dict[str, Any]:
        raise SessionLost("pi ended")

    assert sweeping._if_there(lost) is None
    assert sweeping._if_there(lambda: {"relay": {}}) == {"relay": {}}
