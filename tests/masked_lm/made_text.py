"""Plain text that is made on the spot."""

from pathlib import Path

WORDS = ("the", "old", "ship", "sails", "home", "again", "before", "night", "and", "rain")


def paragraph(number: int, words: int = 12) -> str:
    return " ".join(WORDS[(number * (place + 1) + place * place) % len(WORDS)] for place in range(words))


def write_books(folder: Path, books: int = 3, paragraphs: int = 60) -> Path:
    """Writes so many files with documents of five paragraphs, and returns their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for book in range(books):
        lines = []
        for number in range(paragraphs):
            lines += [paragraph(number + 7 * book), *([""] * 2 if number % 5 == 4 else [])]
        (folder / f"book-{book}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
