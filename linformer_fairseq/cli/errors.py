"""The one kind of error that a command shows its user."""


class UserError(Exception):
    """Something the user can put right, said in one sentence; never shown with a traceback."""
