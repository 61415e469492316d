"""`python -m pareto`, and the installed command `pareto`.

A fault of the program itself gives the user one line, which names a log file that has the rest. Until a command runs,
nothing is imported but the standard library, so that this works when an installation is broken.
"""

from __future__ import annotations

import gc
import os
import platform
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, cast

from pareto import CLONE, __version__
from pareto.protocol.errors import lack_of_memory

_SAME = (
    *("blosc2", "cryptography", "lz4", "paramiko", "psutil"),
    *("pyroute2", "safetensors", "torch", "torchvision", "zstandard"),
)
SWEEP = {"pynvml": "nvidia-ml-py", **{name: name for name in _SAME}}
"""The modules that only the extra `sweep` installs, each with its package."""
AGAIN_S = 0.01
"""After this an interruption that was lost comes again."""
_MEMORY = (
    "this machine, or the limit that is set here, has too little free memory for this: end other programs"
)
MOST_LETTERS = 300
"""The most letters of a fault's own message that are shown."""


def main() -> int:
    """Run the command line; returns the exit code."""
    if os.name == "nt":
        print(
            "error: Windows lacks what this program is made of: run it within WSL 2, in Linux",
            file=sys.stderr,
        )
        return 2
    # The analysis multiplies many small matrices: beside other programs, threads of BLAS wait for each other for most
    # of the time, and with the machine to themselves they win nothing. torch has threads of its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # matplotlib reads a file of this name in the current folder when it is imported, whatever that is.
    exists = os.path.exists
    os.path.exists = lambda path: path != "matplotlibrc" and exists(path)
    return guarded(_command)


def _command() -> int:
    try:
        from pareto.commands.app import main

        return main()
    except ModuleNotFoundError as error:
        package = SWEEP.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        what = f".venv lacks {package}: remove it and start again"
        if not CLONE:
            what = f"this command needs {package}: install the extra `sweep`, in a clone by pip install '.[sweep]'"
        print(f"error: {what}", file=sys.stderr)
        return 2


def guarded(command: Callable[[], int]) -> int:
    """Run a command; returns its exit code, os.EX_SOFTWARE after a fault. The user never sees a traceback."""
    threading.excepthook = _in_thread
    sys.unraisablehook = _unraisable
    printed = sys.stdout
    if printed is not None:
        sys.stdout = cast(TextIO, _Printed(printed))
    try:
        code = command()
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except _Unprintable as error:
        code, fault = 2, error.__cause__
        if isinstance(fault, BrokenPipeError):  # whoever read it has seen enough: `pareto report ... | head`
            code = 128 + signal.SIGPIPE
        elif isinstance(fault, OSError):
            print(f"error: what is printed cannot be written: {fault.strerror}", file=sys.stderr)
    except Exception as error:
        code = 2 if lack_of_memory(error) else os.EX_SOFTWARE
        report(error)
    finally:
        sys.stdout = printed
    # From here on nothing has to be put back; what the interpreter says of a Ctrl-C while it ends is a traceback.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _flush()
    gc.freeze()  # to look for garbage in all that was imported takes the interpreter half a second
    return code


class _Unprintable(Exception):
    """Comes of a fault of stdout: no OSError, which might be taken for one of the files that a command writes."""


class _Printed:
    """A stream whose faults are `_Unprintable`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except OSError as error:
            raise _Unprintable from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise _Unprintable from error


def report(error: BaseException) -> None:
    """Print a line about a fault on stderr."""
    with suppress(OSError):
        print(f"error: {_MEMORY if lack_of_memory(error) else _line(error)}", file=sys.stderr)


def _line(error: BaseException) -> str:
    """One line on an error: what happened, the log file with the details, and what to do with it."""
    words = " ".join(str(error).split())[:MOST_LETTERS]
    what = f"{type(error).__name__}: {words}" if words else type(error).__name__
    shown = "".join(each if each.isprintable() else "?" for each in what)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    what_happened = f"a fault in pareto itself, or in this installation: {shown}{place}"
    log = _written(error)
    if log is None:
        return f"{what_happened}; no log file could be written: report this line and the command"
    return f"{what_happened}; report it with {log}, which says all that is known of it"


def _written(error: BaseException) -> Path | None:
    """Write the log file; returns its path, None where none can be written."""
    program = f"pareto {__version__}, Python {platform.python_version()}, {platform.platform()}"
    where = f"{program}\ncommand: {sys.argv!r}\nfolder: {_here()}\n\n"
    text = where + "".join(traceback.format_exception(error))
    name = f"pareto-error-{time.strftime('%Y%m%d-%H%M%S')}-"
    for place in (_state, tempfile.gettempdir):  # the latter is emptied when the machine restarts
        with suppress(OSError, RuntimeError):
            folder = Path(place())
            folder.mkdir(parents=True, exist_ok=True)
            file, path = tempfile.mkstemp(prefix=name, suffix=".log", dir=folder)
            try:
                with os.fdopen(file, "w", encoding="utf-8", errors="backslashreplace") as log:
                    log.write(text)
            except OSError:
                Path(path).unlink()
                raise
            return Path(path)
    return None


def _here() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "removed"


def _state() -> str:
    """The user's folder for what programs note. Raises RuntimeError without a home."""
    return f"{os.environ.get('XDG_STATE_HOME') or Path.home() / '.local' / 'state'}/pareto"


def _in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        report(args.exc_value)


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    """Say nothing of what a destructor raises, which changes nothing; an interruption comes again a little later.

    Python handles a signal in whatever code is running: a Ctrl-C that arrives in a destructor ends only that. The
    interpreter has one run at each import.
    """
    if issubclass(args.exc_type, KeyboardInterrupt):
        again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()


def _flush() -> None:
    """Flush the streams; else the interpreter does so when it ends, and a failure is several lines."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
