"""fairseq's Adam with the update of torch's fused kernel: ``--optimizer fused_adam``."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from fairseq.optim import FairseqOptimizer, adam, register_optimizer
from torch import Tensor
from torch.optim.adamw import adamw


class FusedAdam(adam.Adam):
    """fairseq's Adam in one pass over the memory of each parameter instead of eight.

    State, hyperparameters and updates are those of :class:`fairseq.optim.adam.Adam`, rounding apart. Parameters in half
    precision are left to it.
    """

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have gradients; return the closure's result."""
        for group in self.param_groups:
            for state in filter(None, map(self.state.get, group["params"])):
                state.setdefault("step", group.get("step", 0))  # a state from apex has it in the group
        if any(parameter.dtype.itemsize < 4 for group in self.param_groups for parameter in group["params"]):
            return super().step(closure)
        result = None if closure is None else closure()
        for group in self.param_groups:
            # The kernel takes the parameters of a device together, after equally many updates.
            together: dict[tuple[int, torch.device], list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    together[self._advance(parameter), parameter.device].append(parameter)
            for (step, device), parameters in together.items():
                self._update(parameters, step, device, group)
        return result

    def _advance(self, parameter: Tensor) -> int:
        """Return the number of a parameter's update, from 1."""
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        return state["step"]

    @torch.no_grad()
    def _update(self, parameters: list[Tensor], step: int, device: torch.device, group: dict[str, Any]) -> None:
        states = [self.state[parameter] for parameter in parameters]
        beta1, beta2 = group["betas"]
        adamw(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            # The kernel counts this update itself.
            list(torch.full((len(parameters),), step - 1.0, device=device).unbind()),
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            # fairseq adds ε to the root of the second moment before its bias is corrected, torch afterwards.
            eps=group["eps"] / math.sqrt(1 - beta2**step),
            maximize=False,
        )


@register_optimizer("fused_adam", dataclass=adam.FairseqAdamConfig)
class FairseqFusedAdam(adam.FairseqAdam):
    """The optimizer ``fused_adam``, with the options of fairseq's ``adam``."""

    def __init__(self, cfg: Any, params: Any) -> None:
        FairseqOptimizer.__init__(self, cfg)  # FairseqAdam's would make fairseq's own Adam or apex's
        self._optimizer = FusedAdam(params, **self.optimizer_config)


# fairseq resumes with an optimizer of the class that a checkpoint names, and its Adam has the same state.
FairseqFusedAdam.__name__ = adam.FairseqAdam.__name__
