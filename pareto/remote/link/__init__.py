"""The link's effects on the bytes that cross it: profiles, netem, the relay, and the check that they hold."""
