"""Translations, before they are scored."""

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.documents.translate import in_order


def test_hypotheses_come_in_the_order_of_the_set() -> None:
    assert in_order({2: "c", 0: "a", 1: "b"}, 3, "Transformer") == ["a", "b", "c"]
    with pytest.raises(UserError, match="gave 1 translations for 2"):
        in_order({1: "a"}, 2, "Transformer")
