"""What a device can measure about itself, one kind of sensor per module."""
