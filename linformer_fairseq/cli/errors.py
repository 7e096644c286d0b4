"""The one kind of error that a command shows its user, and those of it that are treated in a way of their own."""


class UserError(Exception):
    """Something the user can put right, said in one sentence; never shown with a traceback."""


class DiskFullError(UserError):
    """There is no space left for what was being written."""


class CommandError(UserError):
    """A command that was started said why only in its log."""
