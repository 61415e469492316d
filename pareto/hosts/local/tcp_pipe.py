"""`python tcp_pipe.py ADDRESS PORT`: stdin and stdout are a TCP connection, made where this program runs.

The driver's way into a network that it is not in itself. The standard library alone: it has to start quickly.
"""

import os
import socket
import sys
import threading
import time

_STARTING_S = 10.0
"""How long a server that was started a moment ago is waited for."""
_BLOCK = 1 << 18


def main() -> None:
    address, port, began = sys.argv[1], int(sys.argv[2]), time.monotonic()
    while True:
        try:
            stream = socket.create_connection((address, port), _STARTING_S)
            break
        except OSError as error:
            if not isinstance(error, ConnectionRefusedError) or time.monotonic() - began > _STARTING_S:
                sys.exit(f"no connection to {address} port {port}: {error.strerror or error}")
        time.sleep(0.02)
    stream.settimeout(None)
    threading.Thread(target=_copy, args=(0, stream.fileno()), daemon=True).start()
    _copy(stream.fileno(), 1)


def _copy(source: int, target: int) -> None:
    """All of it; where one way ends, so does the program."""
    try:
        while data := os.read(source, _BLOCK):
            view = memoryview(data)
            while view:
                view = view[os.write(target, view) :]
    except OSError:  # the far end went away: the driver notices by the end of file
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
