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

    def attention_flags(self, k: int, sharing: str = "", convolution: int = 0) -> list[str]:
        """Returns the flags of its attention, of fairseq-train and of the conversion alike.

        Args:
            convolution: the width of a convolution over the values beside it; 0 for none.
        """
        kind, flags = self.kind, self.flags
        if convolution and not kind:  # full attention of this package, as fairseq's has no convolution
            kind, flags = FULL_KIND, FULL_FLAGS
        if not kind:
            return []
        beside = convolution and kind != OWN_CONVOLUTION
        return [
            *("--linformer-projection", kind),
            *(("--linformer-k", str(k)) if self.uses_k else ()),
            *(("--linformer-sharing", sharing) if sharing else ()),
            *(("--linformer-value-convolution", str(convolution)) if beside else ()),
            *flags.split(),
        ]


FULL_KIND, FULL_FLAGS = "two-level", "--linformer-k 1 --linformer-exact-below 1000000"
"""Full attention of this package: two levels that are exact at any length."""
OWN_CONVOLUTION = "nystromformer"
"""The kind that has a convolution of its own, which is left to it when it is trained from the start."""
LINFORMER = "linformer"
TWO_LEVEL = "two-level"
KEY_CLUSTERS = "key-clusters"
_ARMS = (
    Arm(BASELINE, "Transformer", what="full attention"),
    Arm(
        TWO_LEVEL,
        "two levels",
        "two-level",
        "--linformer-exact-below 0",
        "means of neighbouring tokens, some of which every block of queries opens; here at every length, as by default "
        "short texts get full attention",
    ),
    Arm(LINFORMER, "Linformer", DEFAULT_KIND, what="learned E and F"),
    Arm(KEY_CLUSTERS, "key clusters", "key-clusters", what="means of clusters of similar keys"),
    Arm("nystromformer", "Nyströmformer", OWN_CONVOLUTION, what="by nystrom-attention, with a convolution of its own"),
    Arm("performer", "Performer", "performer", what="random features, by performer-pytorch"),
    Arm("longformer", "Longformer", "longformer", what="a sliding window, by transformers"),
    Arm("reformer", "Reformer", "reformer", what="hashed queries, by reformer-pytorch"),
)
ARMS = {arm.name: arm for arm in _ARMS}
"""All that can be compared."""
SEVERAL_SEEDS = (BASELINE, TWO_LEVEL, LINFORMER, KEY_CLUSTERS)
"""Those that have all seeds at the first length; everything else has the first one alone."""
EVERY_LENGTH = (BASELINE, TWO_LEVEL, LINFORMER, KEY_CLUSTERS)
"""Those that are trained at every length; the others at the first one alone."""
