"""What a device can tell about itself, one kind of sensor a file. What has no sensor here is not there."""
