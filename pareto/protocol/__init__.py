"""The messages between the driver and the hosts, their check, and errors."""
