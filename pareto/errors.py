"""The errors that the user can put right."""


class UserError(ValueError):
    """What the user can put right: one line that says what is wrong and what to do. Commands end with code 2."""


def one_line(error: BaseException) -> str:
    """An error's message in one line; its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__
