"""Hosts made ready: added to a testbed file, given what they need, examined."""
