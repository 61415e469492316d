from __future__ import annotations

import pytest

from pareto.backends.rpc import RpcClient


@pytest.mark.parametrize(
    "words", ["EOF: end of file", "ENOTCONN: socket is not connected", "EPIPE: broken pipe"]
)
def test_a_connection_that_its_peer_has_closed_is_named_so(words: str) -> None:
    fault = RpcClient("server")._fault(RuntimeError(f"{words} (this error originated at tensorpipe/x.cc:1)"))
    assert str(fault) == "rpc to server: it closed the connection"
