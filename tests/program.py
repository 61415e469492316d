"""The driver's end of the control protocol, for tests that start one of the project's programs by themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests import REPOSITORY


class Program:
    """`python -m module arguments...`, in the namespace of the calling thread."""

    def __init__(self, *module_and_arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *module_and_arguments],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def reply(self, op: str, **fields: Any) -> dict[str, Any]:
        """All of the answer, also where the request is refused."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"id": 1, "op": op, **fields}).encode() + b"\n")
        self.process.stdin.flush()
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reply

    def result(self, op: str, **fields: Any) -> Any:
        """What was asked for. Raises AssertionError where it is refused."""
        reply = self.reply(op, **fields)
        assert reply["ok"], reply
        return reply["result"]

    def close(self) -> int:
        """End of file, as when the driver dies; the exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(20)
        self.process.stdout.close()
        return code
