"""The commands that a user types, each with its options and its work."""
