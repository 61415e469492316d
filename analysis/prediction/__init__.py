"""What any split takes over any chain of hosts: the arithmetic, forecasts from a model profile, and the best splits."""
