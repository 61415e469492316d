"""Real hosts: who is logged in to where, by which key, and the testbed that they make."""
