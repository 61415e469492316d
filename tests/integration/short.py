"""The command with short phases: `python -m tests.integration.short ...`. What a trial does, not how precisely."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import patch

from pareto.__main__ import main
from pareto.sweep import plan
from tests import program

EFFORT = plan.Effort(latency=(2, 0.05), throughput=(2, 0.05))


def pareto(*arguments: str) -> subprocess.Popen[str]:
    """As a program of its own."""
    return program.started(sys.executable, "-m", __spec__.name, *arguments)


def command(*arguments: str) -> program.Ended:
    """Within this process."""
    with patch.object(plan, "QUICK", EFFORT):
        return program.command(*arguments)


def measured(*arguments: str) -> program.Ended:
    """The same without the report at its end."""
    with patch.object(plan, "QUICK", EFFORT):
        return program.measured(*arguments)


if __name__ == "__main__":
    plan.QUICK = EFFORT
    sys.exit(main())
