from __future__ import annotations

import pytest

from pareto.hosts.host import chain, devices, gpus_in_words


@pytest.mark.parametrize(
    ("text", "of_each"),
    [
        ("cpu", ["cpu", "cpu", "cpu"]),
        ("cuda:1", ["cuda:1", "cuda:1", "cuda:1"]),
        ("server=cuda:0", ["cpu", "cpu", "cuda:0"]),
        ("server=cuda:0, middle1=cuda:1,edge=cpu", ["cpu", "cuda:1", "cuda:0"]),
    ],
)
def test_where_each_host_computes(text: str, of_each: list[str]) -> None:
    roles = chain(3)
    assert devices(text, roles) == dict(zip(roles, of_each, strict=True))


def test_gpus_are_named_with_their_hosts() -> None:
    assert gpus_in_words("cpu", chain(2)) == ""
    assert gpus_in_words("server=cuda:1", chain(2)) == ", server on cuda:1"
    assert gpus_in_words("cuda:0", chain(2)) == ", edge on cuda:0, server on cuda:0"
    assert gpus_in_words("cuda:0", chain(2), "edge") == ", edge on cuda:0"
