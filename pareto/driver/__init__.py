"""A sweep, round by round, into its folder."""
