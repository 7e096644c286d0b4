"""The one kind of error the benchmark shows its user."""


class BenchmarkError(Exception):
    """Something the user can put right, said in one sentence; never shown with a traceback."""
