"""What the programs on the hosts, the driver and the analysis all count with. Travels to the hosts; imports nothing."""

GOODPUT = 1448 / 1514
"""TCP payload in each byte on the wire: Ethernet, IPv4, TCP with timestamps, MTU 1500."""
MOST_IN_FLIGHT = 64
"""Requests that are kept in flight where nobody says how many; and the most that may be asked for."""
MOST_ROUNDS = 100
"""None is added beyond, nor advised: a spread that this many do not tame is the machine's to fix."""
