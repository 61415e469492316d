"""Trials against trials: backends of one run, and run against run."""
