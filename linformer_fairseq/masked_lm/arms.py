"""The models that are compared, by name: which attention the encoder has."""

from dataclasses import dataclass

from linformer_fairseq.modules import KINDS
from linformer_fairseq.modules.registry import DEFAULT_KIND

BASELINE = "transformer"


@dataclass(frozen=True)
class Arm:
    """An encoder with one kind of attention."""

    name: str
    """On the command line and in results.json; its results are in folders that begin with this name."""
    label: str
    """In tables and plots."""
    kind: str = ""
    """Empty for fairseq's own full attention."""
    flags: str = ""
    """Further flags of the attention."""
    what: str = ""
    """An explanation for the report, where the label needs one."""

    @property
    def uses_k(self) -> bool:
        """Whether the projected dimension means anything to it."""
        return bool(self.kind) and KINDS[self.kind].options.uses_k

    def attention_flags(self, k: int, sharing: str = "") -> list[str]:
        """Returns the flags of its attention, of fairseq-train and of the conversion alike."""
        if not self.kind:
            return []
        return [
            *("--linformer-projection", self.kind),
            *(("--linformer-k", str(k)) if self.uses_k else ()),
            *(("--linformer-sharing", sharing) if sharing else ()),
            *self.flags.split(),
        ]


_CONVOLUTION = "--linformer-value-convolution 33"
"""As wide as that of the package nystrom-attention."""
_ALWAYS = "--linformer-exact-below 0"
"""Two levels at every length, where by default short texts get full attention."""
_NEVER = "--linformer-exact-below 1000000"
"""Full attention at every length."""
LINFORMER = "linformer"
TWO_LEVEL = "two-level"
_ARMS = (
    Arm(BASELINE, "Transformer", what="full attention"),
    Arm(
        TWO_LEVEL,
        "two levels",
        "two-level",
        _ALWAYS,
        "means of neighbouring tokens, some of which every block of queries opens; here at every length, as by default "
        "short texts get full attention",
    ),
    Arm(LINFORMER, "Linformer", DEFAULT_KIND, what="learned E and F"),
    Arm(
        "transformer-convolution",
        "Transformer with convolution",
        "two-level",
        f"{_NEVER} {_CONVOLUTION}",
        "full attention, and a convolution over the values beside it",
    ),
    Arm(
        "two-level-convolution",
        "two levels with convolution",
        "two-level",
        f"{_ALWAYS} {_CONVOLUTION}",
        "two levels at every length, and a convolution over the values beside them",
    ),
    Arm("nystromformer", "Nyströmformer", "nystromformer", what="by nystrom-attention, with a convolution of its own"),
    Arm("performer", "Performer", "performer", what="random features, by performer-pytorch"),
    Arm("longformer", "Longformer", "longformer", what="a sliding window, by transformers"),
    Arm("reformer", "Reformer", "reformer", what="hashed queries, by reformer-pytorch"),
)
ARMS = {arm.name: arm for arm in _ARMS}
"""All that can be compared."""
SEVERAL_SEEDS = (BASELINE, TWO_LEVEL, LINFORMER)
"""Those that have all seeds at the first length; everything else has the first one alone."""
EVERY_LENGTH = (BASELINE, TWO_LEVEL, LINFORMER)
"""Those that are trained at every length; the others at the first one alone."""
