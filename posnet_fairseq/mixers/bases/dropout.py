"""Dropout that fairseq can keep switched on in generation."""

from torch import Tensor, nn

from posnet_fairseq.ops.dropout import add_dropout, dropout


class Dropout(nn.Module):
    """Dropout in training; with fairseq's ``--retain-dropout`` also in generation.

    Args:
        p: probability of a zero.
        module_name: what ``--retain-dropout-modules`` calls it.
    """

    def __init__(self, p: float, module_name: str) -> None:
        super().__init__()
        self.p = p
        self.module_name = module_name
        self.retained = False

    @property
    def probability(self) -> float:
        """The probability of a zero in the current mode."""
        return self.p if self.training or self.retained else 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        return dropout(x, self.probability)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """`residual` plus :meth:`forward` of `x`, both of any shape."""
        return add_dropout(residual, x, self.probability)

    def make_generation_fast_(
        self,
        name: str = "",
        retain_dropout: bool = False,
        retain_dropout_modules: list[str] | None = None,
        **kwargs: object,
    ) -> None:
        """Keep dropout on in evaluation mode if `retain_dropout` says so; fairseq calls this before generation."""
        named = retain_dropout_modules is None or self.module_name in retain_dropout_modules
        self.retained = retain_dropout and named
