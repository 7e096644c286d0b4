"""Says at the start of a training up to which length k has no effect."""

import logging
from typing import Any

from fairseq.models import BaseFairseqModel

logger = logging.getLogger(__name__)


class TellsExactLength(BaseFairseqModel):
    """A model that says so once, when it is put into training mode; fairseq's other commands never do that."""

    exact_below = 0
    """The length below which texts get full attention; 0 where none do."""
    has_told = False

    def train(self, mode: bool = True) -> Any:
        if mode and self.exact_below and not self.has_told:
            self.has_told = True
            logger.info(
                f"two levels: texts of fewer than {self.exact_below} tokens get full attention, so that --linformer-k "
                "has no effect on them (to have two levels there too, give --linformer-exact-below 0)"
            )
        return super().train(mode)
