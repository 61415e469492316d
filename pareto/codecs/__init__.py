"""What is done to a payload before it is sent, and undone where it arrives. Travels to the hosts."""
