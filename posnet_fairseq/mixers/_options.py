"""Options that several mixers read, declared once, and their checks."""

from dataclasses import dataclass, field

from posnet_fairseq.errors import UsageError


@dataclass
class ClipDistance:
    """The distance beyond which all offsets share one vector or weight."""

    clip_distance: int = field(
        default=16,
        metadata={"help": "K: relative positions beyond ±K share one vector (default: 16; 8 for tiny)"},
    )

    def __post_init__(self):
        if self.clip_distance < 1:
            raise UsageError(
                f"--clip-distance {self.clip_distance}: K must be at least 1, or there is no relative position left. "
                "Choose 1 or more, such as 16."
            )
