"""The table of faults: a few in every run of the gate, the others with `--deep`, which prints what came of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.faults.table import GATE, Fault
from tests.integration.conftest import models_of_its_own
from tests.integration.own_machine import left_clean
from tests.program import end_started

__all__ = ["models_of_its_own"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fault" in metafunc.fixturenames:
        faults = [
            pytest.param(fault, id=str(fault), marks=() if str(fault) in GATE else pytest.mark.deep)
            for fault in metafunc.module.FAULTS
        ]
        metafunc.parametrize("fault", faults)


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Callable[[Fault, str, float | None], None]:
    """Notes for the table what came of a fault: the reason that was given, and after how many seconds."""

    def said(fault: Fault, reason: str, noticed_s: float | None) -> None:
        told = {"then": fault.then, "reason": reason, "noticed_s": noticed_s, "aim_s": fault.within_s}
        for name, value in told.items():
            record_property(name, value)

    return said


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    ran = [
        (report.nodeid.partition("[")[2].rstrip("]"), report.outcome, dict(report.user_properties))
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call" and "then" in dict(report.user_properties)
    ]
    if not (ran and config.getoption("--deep")):
        return
    terminalreporter.section("faults")
    for name, outcome, said in sorted(ran):
        noticed = "-" if (after_s := said["noticed_s"]) is None else f"{after_s:.2f} s, aim {said['aim_s']} s"
        terminalreporter.line(f"{outcome} {said['then']:8} {noticed:>18}  {name}: {said['reason']}")
    counts = Counter((said["then"], outcome) for _, outcome, said in ran)
    terminalreporter.line(", ".join(f"{count} {then} {outcome}" for (then, outcome), count in counts.items()))


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    """A machine of the module's own; nothing is left on it in the end."""
    with left_clean():
        yield
        end_started()
