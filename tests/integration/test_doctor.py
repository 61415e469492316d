"""The doctor on hosts that are reached by SSH: what they tell is their own, and what they lack is found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import REPOSITORY
from tests.lab import Lab, open_lab

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: needs root"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


def doctor(lab: Lab, testbed: Path, *options: str) -> tuple[int, list[str]]:
    """Its exit code, and what it said, each finding in one line."""
    done = subprocess.run(
        [sys.executable, "-m", "pareto", "doctor", "--testbed", str(testbed), *options],
        cwd=REPOSITORY,
        env=lab.environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.replace("\n         ", " ").splitlines()


def of(host: str, lines: list[str]) -> list[str]:
    """The section of that host."""
    start = next(number for number, line in enumerate(lines) if line.split()[1:2] == [host])
    return lines[start : lines.index("", start)]


def test_what_the_hosts_tell_of_themselves(lab: Lab) -> None:
    pi, gpu = lab.host("pi"), lab.host("gpu")
    code, lines = doctor(lab, lab.testbed())
    assert code == 2  # the program that shapes the link was never installed there
    for host, other in ((pi, gpu), (gpu, pi)):
        said = of(host.name, lines)
        assert any(line.startswith(f"ok     data link: {host.data_address} on data0") for line in said)
        assert f"ok     route: packets to {other.data_address} leave through data0" in said
        assert f"ok     listening: can listen on {host.data_address}" in said
        assert any(line.startswith("ok     packages: torch ") for line in said)
        rights = next(number for number, line in enumerate(said) if "rights:" in line)
        assert "/usr/local/sbin/pareto-link, which shapes the link, is not installed" in said[rights]
        assert said[rights + 1] == f"       ./pareto.sh hosts setup --testbed {lab.testbed()}"


def test_faults_of_one_host(lab: Lab) -> None:
    testbed = lab.testbed(
        "faults.yaml",
        pi={"data_interface": "mgmt0", "python": "/nowhere/python"},
        gpu={"data_interface": "mgmt0"},
    )
    code, lines = doctor(lab, testbed)
    assert code == 2
    assert "fault  python: there is no /nowhere/python" in of("pi", lines)
    address = lab.host("gpu").data_address
    assert f"fault  data link: {address} is on data0, not on mgmt0" in of("gpu", lines)


def test_a_cable_that_is_pulled(lab: Lab) -> None:
    lab.link_down()
    try:
        _, lines = doctor(lab, lab.testbed())
    finally:
        lab.link_up()
    assert "fault  data link: data0 has no carrier" in of("pi", lines)
    assert "fault  data link: data0 is down" in of("gpu", lines)


def test_a_host_that_is_off_does_not_hide_the_other(lab: Lab) -> None:
    lab.host("gpu").power_off()
    try:
        code, lines = doctor(lab, lab.testbed())
    finally:
        lab.host("gpu").power_on()
        lab.wait_for_link()
    assert code == 2
    assert of("gpu", lines)[1].startswith("fault  login: gpu (pi@")
    assert of("gpu", lines)[2] == "       ssh gpu true"
    assert "ok     login: it answers" in of("pi", lines)


LINK = """
import sys
from pathlib import Path
from pareto.doctor import hosts
from pareto.hosts import inventory
for finding in hosts._link(inventory.load(Path(sys.argv[1]))):
    print(finding.fatal, finding.words, finding.mend, sep="|")
"""


def test_the_link_between_hosts_that_are_fine(lab: Lab) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LINK, str(lab.testbed())],
        cwd=REPOSITORY,
        env=lab.environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    fatal, words, mend = done.stdout.strip().split("|")
    assert (fatal, mend) == ("False", ""), done.stdout
    assert "round trip" in words
    assert "/s out, " in words
