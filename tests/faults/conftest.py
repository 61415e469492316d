"""The table of faults: some of it in every run of the suite, all of it with `--all-faults`, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from partitions import registry
from tests.integration.own_machine import left_clean
from tests.program import end_started


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-faults", action="store_true", help="the whole table, and the times to notice")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fault" in metafunc.fixturenames:
        everything = metafunc.config.getoption("--all-faults", default=False)
        faults = [fault for fault in metafunc.module.FAULTS if everything or not fault.slow]
        metafunc.parametrize("fault", faults, ids=str)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--all-faults", default=False):
        return
    ran = [
        (report.nodeid.partition("[")[2].rstrip("]"), report.outcome, dict(report.user_properties))
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call" and "then" in dict(report.user_properties)
    ]
    terminalreporter.section("faults")
    for name, outcome, said in sorted(ran):
        noticed = f"{said['noticed_s']:7.2f} s" if said.get("noticed_s") is not None else "        -"
        terminalreporter.line(f"{outcome} {said['then']:8} {noticed}  {name}: {said.get('reason', '')}")
    counts = Counter((said["then"], outcome) for _, outcome, said in ran)
    terminalreporter.line(", ".join(f"{count} {then} {outcome}" for (then, outcome), count in counts.items()))


@pytest.fixture(scope="module", autouse=True)
def models_of_its_own() -> Iterator[None]:
    """What a worker in this process was sent is forgotten: the next module has files of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_adopted", {})
        yield


@pytest.fixture(scope="module", autouse=True)
def machine() -> Iterator[None]:
    """A machine of the module's own; nothing is left on it in the end."""
    with left_clean():
        yield
        end_started()
