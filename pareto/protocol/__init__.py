"""What the driver and the hosts say to each other: messages, their check, errors."""
