"""All that is sent to a host and runs there: it imports nothing that a Raspberry Pi need not have."""
