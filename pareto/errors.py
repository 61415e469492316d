"""The errors that the user can put right."""


class UserError(ValueError):
    """What the user can put right: one line that says what is wrong and what to do. Commands end with code 2."""
