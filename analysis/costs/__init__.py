"""What a request costs: on each host, on each link, in each backend."""
