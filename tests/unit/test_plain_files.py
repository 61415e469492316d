"""Secrets in files; what else `plain_files` does is tested with the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.program import command


@pytest.mark.parametrize(
    "words",
    [
        "fleet scheduler --listen tls://127.0.0.1:1 --certificates {keys}",
        "fleet join --scheduler tls://127.0.0.1:1 --testbed simulated --certificates {keys}",
        "run --model alexnet --netem lte --cluster tls://127.0.0.1:1 --certificates {keys} --testbed simulated",
    ],
)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, words: str, mode: int) -> None:
    keys = tmp_path / "keys"
    assert command("fleet", "certificates", str(keys)).code == 0
    (keys / "member-key.pem").chmod(mode)
    done = command(*words.format(keys=keys).split())
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert f"chmod 600 {keys}/member-key.pem" in line
