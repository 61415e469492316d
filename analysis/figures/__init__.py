"""The figures, one kind a module."""
