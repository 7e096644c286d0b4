"""The one kind of error the recipe shows its user."""


class RecipeError(Exception):
    """Something the user can put right, said in one sentence; never shown with a traceback."""
