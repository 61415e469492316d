"""What the link does to the bytes that cross it: profiles, netem, the relay, and the check that they hold."""
