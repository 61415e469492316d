"""What a user types: a file for each command, with its options and its work."""
