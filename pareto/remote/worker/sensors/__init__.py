"""A device's sensors for itself, one kind of sensor per module."""
