"""Constants that the hosts' programs, the driver and the analysis share. Travels to the hosts; imports nothing."""

GOODPUT = 1448 / 1514
"""TCP payload in each byte on the wire: Ethernet, IPv4, TCP with timestamps, MTU 1500."""
BURST = 0.1
"""The share by which a link may carry more than its rate while a throughput is measured: after a packet was dropped,
what waited for it arrives at once. 6.6 % were seen."""
MOST_IN_FLIGHT = 64
"""Requests that are kept in flight where nobody says how many; and the most that may be asked for."""
MOST_REQUESTS = 10_000
"""The most requests of a phase, whatever its time, and the most to ask for; those that fill the steps come on top."""
MOST_ROUNDS = 100
"""None is added beyond, nor advised: a spread that this many do not tame is the machine's to fix."""
QUEUE_BDP, QUEUE_LEAST_BYTES, QUEUE_LEAST_S = 2, 256 << 10, 0.012
"""The queue in front of a line where a profile sets no limit: twice what the link holds in a round trip, at least what
the first window of a connection needs and home uplinks usually have, and what a gigabit interface's thousand packets
are in time. docs/notes/emulation.md has the reasons."""
KEPT_BYTES = 1 << 30
"""Tuned, a worker's allocator keeps blocks and free space up to this size (`partitions.allocator`)."""
DTYPES = ("float32", "float16", "bfloat16", "uint8", "int8", "int32", "int64", "float64", "bool", "int16")
"""Types of the tensors that cross a link, in the order of their codes there, from 1."""
MAX_RANK, MAX_TENSORS = 8, 16
"""The most dimensions of such a tensor, and the most tensors that cross at once."""
