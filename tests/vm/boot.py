"""One guest: QEMU and virtiofsd, and what comes out of the guest's serial ports."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from tests.vm.kernel import Kernel

MEMORY = "4096M"
# The kernel does not test its ciphers, and puts the same programs at the same addresses: what QEMU has translated once,
# it uses again.
KERNEL_ARGUMENTS = "console=ttyS2 panic=-1 mitigations=off norandmaps cryptomgr.notests"

# What runs where nothing else would: seven times `nop`, and back. For the guest 32 ns, for QEMU about 10.
_SPIN = bytes.fromhex("90909090909090ebf7")

_HERE = Path(__file__).parent
# In the order of the guest's serial ports; guest.sh says what is written where.
_PORTS = ("output", "reports", "kernel")
_DAEMON = "virtiofsd"


class OverdueError(RuntimeError):
    """A guest that is not as far as it should be by now."""


class Console:
    """Where a guest's text goes: all into a file, the last lines into `tail`, its command's to `echo` as it comes."""

    def __init__(self, path: Path, echo: BinaryIO | None = None, lines: int = 30) -> None:
        # A new file: another guest may still write to the old one.
        path.unlink(missing_ok=True)
        self._file = path.open("wb", buffering=0)
        self._echo = echo
        self._tail: deque[bytes] = deque(maxlen=lines)
        self._open: dict[str, bytes] = {}

    def write(self, port: str, data: bytes) -> None:
        if port == "output" and self._echo:
            self._echo.write(data)
            self._echo.flush()
        # Line by line, for two ports write at once.
        *lines, self._open[port] = (self._open.get(port, b"") + data).split(b"\n")
        for line in lines:
            self._file.write(line.rstrip(b"\r") + b"\n")
            # That one is chatty when a guest goes off, and would hide why it did.
            if port != _DAEMON:
                self._tail.append(line.rstrip(b"\r"))

    @property
    def tail(self) -> str:
        lines = [*self._tail, *filter(None, self._open.values())]
        return b"\n".join(lines[-(self._tail.maxlen or 0) :]).decode(errors="replace") or "(nothing)"

    def close(self) -> None:
        self._file.write(b"".join(self._open.values()))
        self._file.close()


class Boot:
    """A guest that runs one script as root and powers off.

    Its processes end with the `with` block, and by SIGKILL with the thread that entered it, however that ends.
    """

    def __init__(self, kernel: Kernel, script: str, console: Console) -> None:
        self._kernel = kernel
        self._script = script
        self._console = console
        self._selector = selectors.DefaultSelector()
        self._deadline = 0.0
        self._renewed_s = 0.0

    def __enter__(self) -> Boot:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._selector)
            with contextlib.ExitStack() as handed_over:
                self._start(stack, handed_over)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def limit(self, seconds: float, *, silent: bool = False) -> None:
        """From now on, `reports` raises OverdueError after so long; `silent`: without a word on a console."""
        self._deadline = time.monotonic() + seconds
        self._renewed_s = seconds if silent else 0.0

    def reports(self) -> Iterator[dict[str, Any]]:
        """The JSON objects that the guest writes to its port for them, until it is off. Raises OverdueError."""
        rest = b""
        off = False
        while True:
            # All that was written before the guest went off is there to be read.
            ready = self._selector.select(0 if off else max(0.0, self._deadline - time.monotonic()))
            if not ready and off:
                return
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                if not data:
                    self._selector.unregister(key.fd)
                    off |= key.data == "reports"
                elif key.data == "reports":
                    *lines, rest = (rest + data).split(b"\n")
                    yield from (json.loads(line) for line in lines)
                else:
                    self._console.write(key.data, data)
                    if self._renewed_s:
                        self._deadline = time.monotonic() + self._renewed_s
            # Also of one that never falls silent.
            if not off and time.monotonic() >= self._deadline:
                raise OverdueError

    def _start(self, stack: contextlib.ExitStack, handed_over: contextlib.ExitStack) -> None:
        """Both processes and the pipes from them; `handed_over` closes what they alone should have open."""
        # virtiofsd's socket has no name in the file system, so there is none to choose nor to remove.
        server = handed_over.enter_context(socket.socket(socket.AF_UNIX))
        server.bind("")
        server.listen(1)
        client = handed_over.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(server.getsockname())
        writers: dict[str, int] = {}
        for port in (*_PORTS, _DAEMON):
            reader, writers[port] = os.pipe()
            stack.callback(os.close, reader)
            handed_over.callback(os.close, writers[port])
            self._selector.register(reader, selectors.EVENT_READ, port)
        initrd = os.memfd_create("initrd")
        handed_over.callback(os.close, initrd)
        with os.fdopen(os.dup(initrd), "wb") as file:
            file.write(self._initrd())

        share = ["-o", "source=/", "-o", "cache=always", "-o", "sandbox=chroot"]
        virtiofsd = [*self._kernel.virtiofsd, f"--fd={server.fileno()}", *share]
        self._spawn(stack, virtiofsd, [server.fileno()], writers[_DAEMON])
        ports = [writers[port] for port in _PORTS]
        qemu = self._qemu(client.fileno(), initrd, ports)
        self._spawn(stack, qemu, [client.fileno(), initrd, *ports], writers["kernel"])

    def _spawn(
        self, stack: contextlib.ExitStack, command: Sequence[str], handed: Sequence[int], errors: int
    ) -> None:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            pass_fds=handed,
            start_new_session=True,
        )
        stack.callback(process.wait)
        stack.callback(process.kill)

    def _initrd(self) -> bytes:
        scripts = {name: (_HERE / name).read_bytes() for name in ("init.sh", "guest.sh")}
        files = {
            "init": scripts["init.sh"],
            "guest.sh": scripts["guest.sh"],
            "command.sh": self._script.encode(),
            "spin": _program(_SPIN),
        }
        return self._kernel.initrd(files)

    def _qemu(self, virtiofsd: int, initrd: int, ports: Sequence[int]) -> list[str]:
        # No KVM: where this runs nested, it does not boot. Nehalem: the least that PyTorch's libraries want.
        # It counts its own instructions, 4 ns each, and that is its clock: while the host is away, it stands still.
        # Where a guest does nothing, its clock is the host's: so it always does something (guest.sh).
        clock = "-icount shift=2,align=off,sleep=on -rtc clock=vm"
        machine = "-machine q35 -accel tcg,thread=single,tb-size=1024 -cpu Nehalem -smp 1 -no-reboot"
        bare = "-nodefaults -no-user-config -display none -monitor none"
        # virtiofsd reads and writes the guest's memory.
        memory = f"-m {MEMORY} -object memory-backend-memfd,id=memory,size={MEMORY},share=on -numa node,memdev=memory"
        root = f"-chardev socket,id=root,fd={virtiofsd} -device vhost-user-fs-pci,chardev=root,tag=host"
        serial = (f"-chardev file,id=port{fd},path=/dev/fd/{fd} -serial chardev:port{fd}" for fd in ports)
        options = " ".join([machine, clock, bare, memory, root, *serial]).split()
        boot = [
            "-kernel",
            str(self._kernel.image),
            "-initrd",
            f"/dev/fd/{initrd}",
            "-append",
            KERNEL_ARGUMENTS,
        ]
        return ["qemu-system-x86_64", *options, *boot]


def _program(code: bytes) -> bytes:
    """The least that Linux on x86_64 runs: an ELF header and one segment, with this code behind them."""
    where, begin = 0x400000, 64 + 56
    size = begin + len(code)
    header = struct.pack("<2HI3QI6H", 2, 62, 1, where + begin, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    segment = struct.pack("<2I6Q", 1, 5, 0, where, where, size, size, 4096)
    return b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + header + segment + code
