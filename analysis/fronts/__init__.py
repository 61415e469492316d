"""From trials to the points that nothing beats."""
