"""Errors that a command reports to its user."""


class UserError(Exception):
    """A mistake that the user can put right; its message is one sentence, shown without a traceback."""
