"""The checks that ship: every backend in the tree passes them, and each broken transport fails one, in words."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from pareto.testing import ends
from pareto.testing.checks import CHECKS
from pareto.testing.ends import verdict
from tests.unit.backends import broken_transports

FILE = broken_transports.__file__
ZMQ = pytest.param("zmq", marks=pytest.mark.skipif(find_spec("zmq") is None, reason="no pyzmq"))
PASS = ("tcp", "tcp:4", "tcp:poll", "tcp:tls", "rpc", ZMQ, "gloo", f"{FILE}:Whole", f"{FILE}:Slow")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", PASS, ids=lambda each: each.rpartition("/")[2])
def test_what_is_right_passes(backend: str) -> None:
    faults = {must: verdict(backend, check) for must, check in CHECKS.items()}
    assert {must: fault for must, fault in faults.items() if fault} == {}


BROKEN = {
    "Swaps": ("order", "the reply to request 1 came in place of 0"),
    "Overwrites": ("kept", "reply 0 of 12 B, looked at after 8: other bytes come back"),
    "CutsOff": ("sizes", "67108864 B: other bytes come back"),
    "Halves": ("several", "five tensors: other bytes come back"),
    "Narrows": ("dtypes", "it is refused: .*tensors .* came.*expected"),
    "Flattens": ("several", "five tensors: .* comes back as "),
    "Forgets": ("let_go", "request 0 of .* B: other bytes come back"),
    "KeepsItsFirstStage": ("stages", "it is refused: .*another model or point"),
    "Timeless": ("seconds", r"a stage that took 0.125 s is told as \(0.0,\)"),
    "Silent": ("fault", "a stage's fault is not refused"),
    "TakesAny": ("another", "a request for another stage than the one served is not refused"),
    "Believes": ("lies", "a reply of another form: .* comes back as "),
    "OpenDoor": ("token", "who has another token is not refused"),
    "Deaf": ("dies", "it hangs: nothing came of it in 3 s"),
    "Impatient": ("stalls", "it is refused: .*timed out"),
    "Leaks": ("memory", "300 requests of 1 MB leave [2-9].. MB behind"),
    "Shared": ("crosses", "of a payload of 67108864 bytes .* crossed the interface"),
}
"""By transport, the function that finds what is broken, and what it says."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, words = BROKEN[name]
    (check,) = (check for check in CHECKS.values() if check.__name__ == function)
    if "hangs" in words:
        monkeypatch.setattr(ends, "MOST_S", 3.0)
    said = verdict(f"{FILE}:{name}", check)
    for left in Path("/dev/shm").glob("pareto-test-*"):  # noqa: S108
        left.unlink()
    assert re.match(words, said), said
