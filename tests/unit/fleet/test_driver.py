"""Which task a testbed gets next, what a member sends, refuses and stops for, and whom a scheduler lets in."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import psutil
import pytest

from pareto.analysis.schema import CELL as CELL_COLUMNS
from pareto.driver.fleet import cluster, driver, member
from pareto.driver.fleet.driver import Task, Unfit, fitting, taken
from pareto.driver.fleet.member import Member, Order, Outbox
from pareto.driver.job import Job
from pareto.driver.manifest import new_manifest
from pareto.driver.runner import Aborted, trial_id
from pareto.hosts import parcels
from pareto.protocol.errors import UserError
from pareto.sweep import plan
from pareto.sweep.cell import Cell
from pareto.sweep.plan import QUICK, Trial
from tests.certificates import certificates
from tests.program import refused
from tests.unit.simulated.worlds import sweep

pytest.importorskip("distributed")


Messages = list[dict[str, Any]]

CELL = Cell("mobilenet_v2", (7,), "features.6", "tcp", "none", 1)
OTHER = Cell("mobilenet_v2", (8,), "features.7", "tcp", "none", 1)


def planned(cell: Cell, number: int) -> Trial:
    return Trial(cell, number, 1.0, 1.0, cast(Any, None))


TRIALS = (planned(CELL, 1), planned(OTHER, 1))


def message(cell: Cell = CELL, number: int = 1, place: Any = 0, **changes: Any) -> dict[str, Any]:
    columns = {name: cell.columns[name] for name in CELL_COLUMNS}
    named = {**columns, "prefetch_asked": str(cell.prefetch), "round": number, "testbed": "lab"}
    row = {**named, "point_name": cell.point_name, "status": "ok", "reason": "", "restart": 1, "wall_s": 1.0}
    link = {"model": cell.model, "netem": "none", "testbed": "lab", "trial": trial_id(planned(cell, number))}
    stages = [{**named, "position": 0, "host": "edge"}]
    parts = {"place": place, "opened": "today", "row": row, "stages": stages, "links": [link]}
    return {**parts, "requests": b"", "devices": b"", **changes}


def with_row(**changes: Any) -> dict[str, Any]:
    return message(row=message()["row"] | changes)


def without(name: str, part: str = "") -> dict[str, Any]:
    sent = message()
    del (sent[part] if part else sent)[name]
    return sent


def test_a_testbed_gets_what_it_has_had_least_and_of_that_the_first() -> None:
    cells = {netem: Cell("m", (1,), "mid", "tcp", netem, 1) for netem in ("wifi", "lte")}
    of_all = ((cell, number) for number in (1, 2) for cell in cells.values())
    waiting: list[Task] = [(Trial(*each, 0.1, 2.0, QUICK),) for each in of_all]
    one, other = driver.FleetTestbed("lab1"), driver.FleetTestbed("lab2")
    tasks = [taken(waiting, each)[0] for each in (one, other, one, other)]
    found = [(trial.cell.netem, trial.round) for trial in tasks]
    assert found == [("wifi", 1), ("lte", 1), ("lte", 2), ("wifi", 2)]
    assert not waiting


def test_what_a_testbed_does_is_said() -> None:
    testbed, said = driver.FleetTestbed("lab1"), []
    for name, value in (("losses", 0), ("address", "tls://a"), ("task", TRIALS), ("out", "slow")):
        setattr(testbed, name, value)
        said.append(testbed.in_words().removeprefix("lab1: "))
    assert said == ["not there", "idle", "mobilenet_v2 none, round 1", "taken out: slow"]


def test_a_row_of_a_trial_that_was_given_is_taken() -> None:
    assert fitting(message(), TRIALS, "lab") is TRIALS[0]
    assert fitting(message(OTHER, place=1), TRIALS, "lab") is TRIALS[1]


@pytest.mark.parametrize(
    "sent",
    [
        message(OTHER),
        message(number=2),
        message(place=7),
        message(place="0"),
        *(without(name) for name in message()),
        *(without(name, "row") for name in ("status", "model", "round", "testbed")),
        with_row(status="fine"),
        with_row(testbed="other"),
        with_row(restart="first"),
        with_row(wall_s="1.0"),
        with_row(wall_s=None),
        with_row(no_such_column=1),
        message(row=None),
        message(stages=[{**message(OTHER)["stages"][0]}]),
        message(stages=[{}]),
        message(links=[{**message(OTHER)["links"][0]}]),
        message(links=["link"]),
        message(requests="text"),
        message(opened=[]),
    ],
)
def test_what_is_not_is_refused_in_one_line(sent: dict[str, Any]) -> None:
    with pytest.raises(Unfit, match=r"^it sent what is no row of its trial: [^\n]*$"):
        fitting(sent, TRIALS, "lab")


class Alone(Member):
    """A member of a simulated testbed at no scheduler. most: how many trials are wanted of it."""

    def __init__(self, most: int = 9) -> None:
        self.sent: Messages = []
        self.said: list[str] = []
        self._most = most
        super().__init__("simulated", self.said.append)

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def trials(self) -> Messages:
        return [message for message in self.sent if "row" in message]

    def is_wanted(self) -> bool:
        return len(self.trials) < self._most


@pytest.fixture(scope="module")
def order() -> Iterator[Order]:
    """A task of two trials of a simulated sweep."""
    wanted = sweep(points="3,5")
    job = Job(wanted, 0.0, dry_run=True)
    manifest = json.loads(json.dumps(new_manifest(wanted, job.records, job.networks)))
    planned = plan.make((job.sweep, job.facts, job.networks))
    recorded, code = wanted.model_dump(mode="json"), parcels.code()[1]
    yield Order("k", "s", "run", "simulated-2", recorded, manifest, planned.trials, planned.rounds, 0, code)
    job.close()


def test_it_sends_each_trial_whole_and_stops_when_nobody_wants_the_rest(order: Order) -> None:
    member = Alone(most=1)
    member.measure(order)
    member.close()
    (one,) = member.trials
    assert (one["row"]["testbed"], one["row"]["round"]) == ("simulated-2", 1)
    assert (one["place"], len(one["stages"])) == (0, 2)
    assert one["links"]
    assert one["requests"].startswith(b"PAR1")
    begun, ended = (message["record"] for message in member.sent if "record" in message)
    assert "ended_at" not in begun
    assert (ended["trials"], ended["testbed_name"]) == (1, "simulated-2")


def test_a_member_ends_also_where_a_signal_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its testbed put back."""
    monkeypatch.setattr(member.os, "kill", lambda *_: None)
    monkeypatch.setattr(member.signal, "signal", lambda *_: None)  # this process' own stays
    said = list[str]()
    one = Member("simulated", said.append)
    one.session = "a driver's"
    one.end()
    with pytest.raises(KeyboardInterrupt):
        one.work()
    assert said == ["put back"]


def test_it_keeps_its_testbed_open_for_one_driver(order: Order) -> None:
    member = Alone()
    for session in ("s", "s", "another's"):
        member.measure(replace(order, session=session))
    member.close()
    assert [line.partition(" ")[0] for line in member.said] == ["measuring", "put"] * 2
    assert len({each["opened"] for each in member.trials}) <= 2
    assert len(member.trials) == 3 * len(order.trials)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"code": "another"}, "another version"),
        ({"sweep": sweep().model_dump(mode="json") | {"testbed": "local"}}, "real ones"),
        ({"then": {"models": {"net.small": {"graph_digest": "another"}}, "profiles": {}}}, "graph"),
    ],
)
def test_it_refuses_what_is_not_as_the_drivers(order: Order, changed: dict[str, Any], words: str) -> None:
    member = Alone()
    with pytest.raises(RuntimeError, match=words):
        member.measure(replace(order, **changed))
    assert (member.sent, member.session) == ([], "")


def test_a_row_has_pythons_own_numbers() -> None:
    sent: Messages = []
    outbox = Outbox("run", "then", sent.append)
    outbox.append_link({"rtt_s": np.float64(0.5)})
    outbox.append_trial({"round": np.int64(1), "status": "ok"})
    (one,) = sent
    assert [type(value) for value in (*one["row"].values(), *one["links"][0].values())] == [int, str, float]


NAMED = ("tls_ca_file", "tls_cert", "tls_key")


def listening() -> set[tuple[str, int]]:
    """Where this process listens."""
    found = psutil.Process().net_connections("inet")
    return {(each.laddr.ip, each.laddr.port) for each in found if each.status == psutil.CONN_LISTEN}


def test_a_client_that_cannot_be_closed_hides_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that looks for a scheduler that is gone, in the middle of its handshake."""
    closed = []

    class Client:
        def __init__(self, *_: object, **__: object) -> None: ...

        def close(self) -> None:
            closed.append(self)
            raise ValueError("IOStream is not idle; cannot convert to SSL")

    monkeypatch.setattr("distributed.Client", Client)
    monkeypatch.setattr(cluster, "security", lambda *_: None)
    joined = sweep().model_copy(update={"cluster": "tls://127.0.0.1:1"})
    with pytest.raises(Aborted, match="is gone"), cluster.opened(joined):
        raise Aborted("the scheduler is gone")
    assert len(closed) == 1


def test_a_runs_own_scheduler_is_on_loopback_and_lets_in_nobody_without_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 1.0)
    monkeypatch.setattr(member, "CONNECT_S", 1.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cluster.require()
    before = listening()
    with cluster.opened(sweep()) as (client, _):
        address, ours = client.scheduler.address, listening() - before
        assert address.startswith("tls://127.0.0.1:")
        assert {host for host, _ in ours} == {"127.0.0.1"}
        stranger = tuple(map(Path, certificates(tmp_path / "other")[1::2]))
        let_in = cluster.security("--scheduler", address, (stranger[0], stranger[1], stranger[2]))
        with pytest.raises(UserError, match=address):
            member.join(address, let_in, "simulated", "stranger", print)
        joined = sweep().model_copy(update={"cluster": address, **dict(zip(NAMED, stranger, strict=True))})
        with pytest.raises(UserError, match="certificate"), cluster.opened(joined):
            pass
        port = int(address.rpartition(":")[2])
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
            anybody.wrap_socket(plain) as sock,
        ):
            if not sock.recv(1):  # in TLS 1.3 the refusal comes with the first message
                raise ConnectionError
        for _, other in ours - {("127.0.0.1", port)}:
            for page in ("info/main/workers.html", "status", "json/counts.json", "metrics"):
                with pytest.raises(HTTPError, match="404"):
                    urlopen(f"http://127.0.0.1:{other}/{page}", timeout=30)
        assert client.scheduler_info()["workers"] == {}
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_dasks_own_settings_name_a_certificate_too(tmp_path: Path) -> None:
    import dask

    _, authority, _, certificate, _, key = certificates(tmp_path / "lab")
    with pytest.raises(UserError, match="--tls-cert"):
        cluster.security("--scheduler", "tls://lab:8786", (None, None, None))
    named = {"ca-file": authority, "worker.cert": certificate, "worker.key": key}
    with dask.config.set({f"distributed.comm.tls.{name}": value for name, value in named.items()}):
        made = cluster.security("--scheduler", "tls://lab:8786", (None, None, None))
    assert made.tls_ca_file == authority
    assert made.require_encryption


@pytest.mark.parametrize(
    "words",
    [
        "fleet join --scheduler tls://127.0.0.1:1 --testbed simulated",
        "run --model alexnet --netem lte --cluster tls://127.0.0.1:1 --testbed simulated",
    ],
)
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, words: str) -> None:
    files = certificates(tmp_path / "keys")
    (tmp_path / "keys" / "lab-key.pem").chmod(0o640)
    assert f"chmod 600 {tmp_path}/keys/lab-key.pem" in refused(*words.split(), *files)
