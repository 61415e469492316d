"""Secrets in files; what else `plain_files` does is tested with the store."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("distributed")

from tests.certificates import certificates
from tests.program import command


@pytest.mark.parametrize(
    "words",
    [
        "fleet join --scheduler tls://127.0.0.1:1 --testbed simulated",
        "run --model alexnet --netem lte --cluster tls://127.0.0.1:1 --testbed simulated",
    ],
)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, words: str, mode: int) -> None:
    files = certificates(tmp_path / "keys")
    (tmp_path / "keys" / "lab-key.pem").chmod(mode)
    done = command(*words.split(), *files)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert f"chmod 600 {tmp_path}/keys/lab-key.pem" in line
