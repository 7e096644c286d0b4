"""Errors that a command reports to its user."""


class UserError(Exception):
    """A mistake that the user can put right; its message is one sentence, shown without a traceback."""


class CommandError(UserError):
    """A command that this one started has failed; its log says why."""
