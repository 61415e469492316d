from __future__ import annotations

import pytest
import torch

from pareto.remote.backends import rpc
from pareto.remote.backends.rpc import RpcClient


@pytest.mark.parametrize(
    "words", ["EOF: end of file", "ENOTCONN: socket is not connected", "EPIPE: broken pipe"]
)
def test_a_connection_that_its_peer_has_closed_is_named_so(words: str) -> None:
    fault = RpcClient("server")._fault(RuntimeError(f"{words} (this error originated at tensorpipe/x.cc:1)"))
    assert str(fault) == "rpc to server: it closed the connection"


def test_a_part_of_a_tensor_is_sent_without_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorPipe sends all memory that a tensor is a part of, unless it is twice as much or more."""
    sent: list[torch.Tensor] = []
    monkeypatch.setattr(rpc.rpc, "rpc_async", lambda peer, run, args: sent.extend(args[2]))
    whole, part = torch.arange(40, dtype=torch.uint8), torch.arange(40, dtype=torch.uint8)[:30]
    RpcClient("server").send(0, (whole, part))
    assert [tensor.untyped_storage().nbytes() for tensor in sent] == [40, 30]
    assert sent[0] is whole and torch.equal(sent[1], part)
