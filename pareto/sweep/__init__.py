"""The sweep that is asked for: options, networks, cells, and the plan of trials."""
