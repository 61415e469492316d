"""Codecs: they change a payload before it is sent, and undo that where it arrives. Travels to the hosts."""
