"""What goes over to a host: whole or not at all, and once."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pareto.hosts import parcels as shipping
from pareto.hosts.connection import Outcome, ThisMachine, Unreachable

DATA = bytes(range(256)) * 4000


class Watched(ThisMachine):
    """Counts the bytes that go over. `over`: what becomes of them; `command`: of what is done with them."""

    sent = 0

    def __init__(self, over: Callable[[bytes], bytes] = bytes, command: Callable[[str], str] = str) -> None:
        super().__init__()
        self.over, self.command = over, command

    def run(
        self, command: str, stdin: Iterable[bytes] = (), *, timeout_s: float = 30.0, on_line: Any = None
    ) -> Outcome:
        if stdin and "tar" in command:
            self.sent += len(data := self.over(b"".join(stdin)))
            stdin = [data]
        return super().run(self.command(command), stdin, timeout_s=timeout_s, on_line=on_line)


def cut_before(number: int) -> Watched:
    """After a whole number of the archive's files."""

    def over(data: bytes) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            return data[: tar.getmembers()[number].offset]

    return Watched(over)


# The connection ends before the last file's last byte, which looks like the end of the input; or halfway.
CUT = Watched(lambda data: data[: data.rindex(DATA[-1:]) - 1])
CUT_IN_TWO = Watched(lambda data: data[: len(data) // 2 + 100])
# Whatever unpacks what arrives is killed with its shell; or nothing larger than a few kB can be written there.
KILLED = Watched(command=lambda command: command.replace("sync", "kill -9 $$"))
FULL = Watched(command=lambda command: f"ulimit -f 4; {command}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "of it's own"


def test_a_file_goes_over_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Watched()
    target = shipping.ship(connection, str(folder), DATA, "d1ge57.safetensors")
    assert target == f"{folder}/d1ge57.safetensors"
    assert Path(target).read_bytes() == DATA
    sent = connection.sent
    assert len(DATA) < sent < len(DATA) + 5000
    nowhere = folder / "not read"
    assert shipping.ship(connection, str(folder), nowhere, "d1ge57.safetensors") == target
    assert connection.sent == sent
    # A file on disk. An empty one, too. What another driver sends right now stays.
    theirs = folder / f"{os.uname().nodename}.{os.getpid()}.part"
    theirs.mkdir(parents=True)
    for name, content in (("d1ge57", DATA), ("empty", b"")):
        (source := tmp_path / "weights").write_bytes(content)
        assert Path(shipping.ship(ThisMachine(), str(folder), source, name)).read_bytes() == content
    assert {path.name for path in folder.iterdir()} == {"d1ge57.safetensors", "d1ge57", "empty", theirs.name}
    # A folder that is a file is named.
    (tmp_path / "taken").write_text("")
    with pytest.raises(Unreachable, match=r"^this machine: .*taken"):
        shipping.ship(ThisMachine(), str(tmp_path / "taken"), DATA, "d1ge57")
    # Folders are in the user's home.
    monkeypatch.setenv("HOME", str(tmp_path))
    home = f"{tmp_path}/.pareto"
    absolute = {".pareto": home, "~/.pareto": home, "/srv/pareto": "/srv/pareto"}
    assert {folder: shipping.absolute(ThisMachine(), folder) for folder in absolute} == absolute


@pytest.mark.parametrize("connection", [CUT, CUT_IN_TWO, cut_before(1), cut_before(2), KILLED, FULL])
def test_files_of_which_the_last_did_not_arrive_are_not_taken(connection: Watched, folder: Path) -> None:
    """What is left of another try does not matter."""
    parcels = [shipping.Parcel.of(DATA, name) for name in ("0ther", "d1ge57")]
    with pytest.raises(Unreachable):
        shipping.send(connection, str(folder), parcels)
    assert [path.suffix for path in folder.iterdir()] == [".part"] * (connection is KILLED)
    shipping.ship(ThisMachine(), str(folder), DATA, "d1ge57")
    assert [path.name for path in folder.iterdir()] == ["d1ge57"]
    assert (folder / "d1ge57").read_bytes() == DATA


def test_whoever_is_second_with_the_code_takes_what_is_there(folder: Path) -> None:
    class Overtaken(ThisMachine):
        """Another driver has its code there as soon as this one has seen that it lacks."""

        def run(self, command: str, *arguments: Any, **named: Any) -> Outcome:
            if "tar" in command:
                shipping.ship_code(ThisMachine(), str(folder))
            return super().run(command, *arguments, **named)

    code = shipping.ship_code(Overtaken(), str(folder))
    assert [str(path) for path in folder.iterdir()] == [code]
    assert sorted(path.name for path in Path(code).iterdir()) == ["pareto"]


def test_the_code_goes_over_once_and_runs_there(folder: Path) -> None:
    connection = Watched()
    code = shipping.ship_code(connection, str(folder))
    sent = connection.sent
    assert sent > 100_000
    assert shipping.ship_code(connection, str(folder)) == code
    assert connection.sent == sent
    assert [str(path) for path in folder.iterdir()] == [code]
    python = f"cd {shlex.quote(code)} && {shlex.quote(sys.executable)}"
    told = ThisMachine().run(
        f"{python} -c 'import pareto.remote.worker.probe as it, pareto.partitions; print(it.__file__)'"
    )
    assert told.out.strip() == f"{code}/pareto/remote/worker/probe.py", told.err
    assert ThisMachine().run(f"{python} -m pareto.remote.worker.probe").status == 0  # it ends at end of file
    # Only what workers need travels.
    there = {
        path.relative_to(code).parts for path in Path(code).rglob("*.*") if "__pycache__" not in str(path)
    }
    assert {parts[0] for parts in there} == {"pareto"}
    assert {parts[1] for parts in there} == {"__init__.py", "protocol", "remote", "partitions"}
    assert {Path(parts[-1]).suffix for parts in there} == {".py"}


def test_changed_code_goes_elsewhere(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files make the same archive, whatever their times, modes and order; others another."""
    here = shipping.ship_code(ThisMachine(), str(folder))
    copy = tmp_path / "copy"
    for path in sorted(Path(here).rglob("*.py"), reverse=True):
        target = copy / path.relative_to(here)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        target.chmod(0o600)
    monkeypatch.setattr(shipping, "REPOSITORY", copy)
    files = shipping.files
    monkeypatch.setattr(shipping, "files", lambda *of: dict(reversed(files(*of).items())))
    assert shipping.ship_code(ThisMachine(), str(folder)) == here
    with (copy / "pareto/remote/worker/probe.py").open("a") as file:
        file.write("# changed\n")
    other = shipping.ship_code(ThisMachine(), str(folder))
    assert other != here
    assert Path(other, "pareto/remote/worker/probe.py").read_text().endswith("# changed\n")


def test_many_files_go_over_in_one_go_and_only_those_that_lack(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(DATA)
    content = {f"{number:03}": bytes([number]) * number for number in range(150)}
    asked = {*content, "large"}
    assert shipping.lacking(ThisMachine(), str(folder), asked) == asked
    parcels = [shipping.Parcel.of(data, name) for name, data in content.items()]
    parcels.append(shipping.Parcel.of(tmp_path / "large", "large"))
    connection, sent = Watched(), list[int]()
    shipping.send(connection, str(folder), parcels, sent.append)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {**content, "large": DATA}
    assert sum(sent) == sum(parcel.size for parcel in parcels)
    assert max(sent) < len(DATA) / 2, "who watches sees it grow"
    assert shipping.lacking(ThisMachine(), str(folder), [*asked, "new"]) == {"new"}
    lying = Mock(run=Mock(return_value=Outcome(0, "one\n/etc/passwd\n", "")))
    assert shipping.lacking(lying, str(folder), ["one", "two"]) == {"one"}, "and nothing else"


def test_what_a_disk_has_no_room_for_or_shrinks_meanwhile_is_not_taken(folder: Path) -> None:
    def content() -> Iterator[bytes]:
        while sum(sent) < 1 << 30:
            yield bytes(1 << 20)

    sent = list[int]()
    parcel = shipping.Parcel("d1ge57", 1 << 60, content)
    with pytest.raises(Unreachable, match=r"MB are free for .*, and 1152921504607 MB are to come$"):
        shipping.send(ThisMachine(), str(folder), [parcel], sent.append)
    assert sum(sent) < 1 << 30
    assert list(folder.iterdir()) == []
    with pytest.raises(OSError, match=r"^d1ge57 has 3 bytes, not 4$"):
        shipping.send(ThisMachine(), str(folder), [shipping.Parcel("d1ge57", 4, lambda: [b"abc"])])
    assert not (folder / "d1ge57").exists()
