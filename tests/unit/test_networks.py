"""Which profile each link of a sweep's networks has, and what a network is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.errors import UserError
from pareto.sweep.checked_sweep import make_sweep
from pareto.sweep.networks import links_of, networks_of, networks_to_check, profiles


def test_each_link_has_a_profile(snapshot: SnapshotAssertion) -> None:
    assert [it.name for it in profiles("wifi+lte", 2)] == ["wifi", "lte"]
    assert [it.name for it in profiles("wifi", 3)] == ["wifi"] * 3
    for links in (3, 1):
        with pytest.raises(UserError) as refused:
            profiles("wifi+lte", links)
        assert "--netem wifi+lte" in str(refused.value)
        assert str(refused.value) == snapshot
    with pytest.raises(UserError):
        make_sweep({"model": "m", "netem": "wifi+nonsense"})


def test_a_check_makes_as_many_hosts_as_the_profiles_need() -> None:
    wanted = make_sweep({"model": "m", "netem": "wifi,wifi+lte"})
    assert [[it.name for it in network] for network in networks_to_check(wanted)] == [
        ["wifi", "wifi"],
        ["wifi", "lte"],
    ]
    with pytest.raises(UserError, match=r"--netem wifi\+lte"):
        networks_to_check(make_sweep({"model": "m", "netem": "wifi+lte", "hosts": 2}))


def test_networks_are_told_apart_by_their_profiles_in_order() -> None:
    wanted = make_sweep({"model": "m", "netem": "wifi,wifi+lte,lte+lte", "hosts": 3})
    networks = networks_of(wanted, 2)
    assert {name: [it.name for it in network] for name, network in networks.items()} == {
        "wifi": ["wifi", "wifi"],
        "wifi+lte": ["wifi", "lte"],
        "lte": ["lte", "lte"],
    }


def test_profiles_of_one_name_must_be_one(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    file = tmp_path / "wifi.yaml"
    file.write_text("edge_to_server: {delay: 9ms}\n")
    wanted = make_sweep({"model": "m", "netem": f"wifi,{file}"})
    with pytest.raises(UserError) as refused:
        networks_of(wanted, 1)
    assert str(file) in str(refused.value)
    assert str(refused.value) == snapshot


def test_a_single_host_has_a_network_of_its_own_that_is_none() -> None:
    wanted = make_sweep({"model": "m", "edge_only": True, "batch_size": "1,8"})
    assert links_of(wanted) == 0
    assert networks_of(wanted, 0) == {"edge-only": ()}
    assert wanted.backends == ("tcp",), "all are the same where nothing crosses"
    assert make_sweep(wanted.model_dump()) == wanted, "as when it is resumed"
