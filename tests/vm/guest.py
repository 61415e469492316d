"""Tests that run in a guest: one boot for all that are selected, and its reports as if they had run here."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm.kernel import UnavailableError
from tests.vm.machine import LOG, Machine, MachineError


class GuestItem(pytest.Item):
    """Stands for a test on the host: found by the same names and marks, but nothing of it is set up or run."""

    _where: Any

    @classmethod
    def of(cls, item: pytest.Item) -> GuestItem:
        assert item.parent is not None
        made: GuestItem = cls.from_parent(item.parent, name=item.name)
        made._where = item.reportinfo()
        made.own_markers = list(item.own_markers)
        made.keywords.update(dict.fromkeys(item.keywords, True))
        made.extra_keyword_matches = set(item.extra_keyword_matches)
        return made

    def reportinfo(self) -> Any:
        return self._where

    def runtest(self) -> None:
        raise NotImplementedError("its reports come from the guest")


class GuestRun:
    """pytest in a guest, with the tests that are selected here."""

    def __init__(self, session: pytest.Session) -> None:
        self._config = session.config
        self._ids = [item.nodeid for item in session.items if isinstance(item, GuestItem)]
        self._pending = set(self._ids)
        self._reports: dict[str, list[pytest.TestReport]] = defaultdict(list)
        self._skip = self._failure = ""
        self._machine: Machine | None = None
        self._config.add_cleanup(self.close)
        try:
            self._machine = Machine(self._command())
        except UnavailableError as error:
            self._skip = str(error)
            return
        self._incoming = self._machine.reports()
        self._say(f"booting a guest for {len(self._ids)} tests")

    def reports(self, item: GuestItem) -> list[pytest.TestReport]:
        """The test's, as soon as it has ended. Where it did not run there is one, which says why."""
        while item.nodeid in self._pending and not self._skip and not self._failure:
            self._receive()
        if item.nodeid not in self._pending:
            reports = self._reports.pop(item.nodeid)
        elif self._skip:
            where = (str(item.path), item.location[1] or 0, f"Skipped: {self._skip}")
            reports = [_report(item, "setup", "skipped", where)]
        else:
            reports = [*self._reports.pop(item.nodeid, []), _report(item, "call", "failed", self._failure)]
            # The whole console once.
            self._failure = self._failure.partition("\n")[0]
        self._pending.discard(item.nodeid)
        if not self._pending:
            self.close()
        return reports

    def close(self) -> None:
        if self._machine:
            self._machine.close()
            self._machine = None

    def _receive(self) -> None:
        assert self._machine is not None
        try:
            data = next(self._incoming)
        except StopIteration:
            status = self._machine.status
            self._failure = f"pytest in the guest ended with status {status} and without this test"
        except MachineError as error:
            self._failure = str(error)
        else:
            # Where and why it was skipped, if it was: JSON knows no tuples.
            if isinstance(data["longrepr"], list):
                data["longrepr"] = tuple(data["longrepr"])
            report = self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
            self._reports[report.nodeid].append(report)
            if report.when == "teardown":
                self._pending.discard(report.nodeid)
            return
        self._failure += f"; the end of its console, all of which is in {LOG}:\n{self._machine.tail}"

    def _command(self) -> list[str]:
        options = self._config.option
        # Plugins that these tests do not need take an emulated processor ten seconds.
        command = ["env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", sys.executable, "-m", "pytest"]
        command += ["-p", "pytest_timeout", "-p", "no:cacheprovider", f"--tb={options.tbstyle}"]
        command += ["-v"] * options.verbose
        command += ["--deep"] * options.deep
        if options.timeout is not None:
            command.append(f"--timeout={options.timeout}")
        return [*command, f"--rootdir={self._config.rootpath}", *self._ids]

    def _say(self, text: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter:
            reporter.ensure_newline()
            reporter.write_line(text)


class Reporter:
    """In the guest: sends each report to the host."""

    def __init__(self, config: pytest.Config, port: str) -> None:
        self._config = config
        self._port = Path(port)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with self._port.open("w", encoding="ascii") as port:
            port.write(json.dumps(data, default=str) + "\n")


def captured(report: pytest.TestReport) -> Iterator[str]:
    """What the test printed, in all its phases."""
    return (text for name, text in report.sections if name.startswith(("Captured stdout", "Captured stderr")))


def _report(item: pytest.Item, when: Any, outcome: Any, longrepr: Any) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {}, outcome, longrepr, when)
