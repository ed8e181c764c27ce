"""The graphs of :mod:`posnet_fairseq.inference.onnx_export`, in the place of the model that they were made of."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from posnet_fairseq.inference.model_folder import AGAIN
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_file, read_small
from posnet_fairseq.shared.records import digest, sealed
from posnet_fairseq.shared.schema import loads

FACTS = "graphs.json"


class OnnxModel(nn.Module):
    """A translation model that onnxruntime computes, for the searches of posnet; with `int8` by 8-bit weights.

    Raises:
        UsageError: a file that posnet-export wrote into the folder with ``--onnx`` is missing, damaged or exchanged.
    """

    def __init__(self, folder: str | Path, int8: bool = False) -> None:
        super().__init__()
        folder, end, self.dtype = Path(folder), ".int8" if int8 else "", "int8" if int8 else "float32"
        self.facts = _facts(folder / FACTS)
        self.encode, self.step = (self._graph(folder / f"{name}{end}.onnx") for name in ("encoder", "step"))
        self.first_symbol = self.facts["eos"]
        longest = self.facts["longest"]
        self.encoder = SimpleNamespace(max_positions=lambda: longest["source"])
        self.max_positions: Callable[[], int] = lambda: longest["target"]
        self.place = nn.Parameter(torch.zeros(0), requires_grad=False)  # says device and precision of the search

    def extra_repr(self) -> str:
        """Return precision and limits, which printing it shows."""
        source, target = self.facts["longest"].values()
        return f"{self.dtype}, at most {source} source and {target} target tokens"

    def _graph(self, path: Path) -> Any:
        import onnxruntime

        check_file(path)
        hashes = self.facts.get("files", {})  # those that are being checked have none
        if hashes and digest(path) != hashes.get(path.name):
            raise UsageError(f"{path} is not the file that {FACTS} was written with. {AGAIN}")
        try:
            return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has a dozen kinds, which have no class in common
            raise UsageError(f"{path} is damaged or no graph ({str(error).strip():.100}). {AGAIN}") from error

    def decoding(self, sources: Tensor, need_attention: bool = False, allowed: Tensor | None = None) -> "OnnxDecoding":
        """Return the decoding of a batch. Arguments are those of the search's ``Decoding``; there is no attention."""
        return OnnxDecoding(self, sources, allowed)


class OnnxDecoding:
    """A batch that is decoded step by step, with a row of the state for each hypothesis."""

    def __init__(self, model: OnnxModel, sources: Tensor, allowed: Tensor | None) -> None:
        self._model, self._allowed, self._position = model, allowed, 0
        names = [output.name for output in model.encode.get_outputs()]
        self._memory = dict(zip(names, model.encode.run(None, {"tokens": sources.numpy()}), strict=True))
        shapes = model.facts["starts"].items()
        self._state = {name: numpy.zeros((len(sources), *shape), dtype=numpy.float32) for name, shape in shapes}

    def step(self, tokens: Tensor, rows: int) -> tuple[Iterator[Tensor], None]:
        """Return scores of each hypothesis' next token, see :meth:`Decoding.step`."""
        return iter(self._step(tokens).split(rows)), None

    def _step(self, tokens: Tensor) -> Tensor:
        """Return (R, V)."""
        last = {"tokens": tokens.numpy(), "position": numpy.array([self._position])}
        scores, *new = self._model.step.run(None, self._memory | self._state | last)
        self._state = dict(zip(self._state, new, strict=True))
        self._position += 1
        following = torch.from_numpy(scores)
        return following if self._allowed is None else following[:, self._allowed]

    def forced(self, tokens: Tensor, is_read: Tensor) -> tuple[Iterator[Tensor], None]:
        """Return the scores after all tokens, see :meth:`Decoding.forced`, a step at a time."""
        columns = zip(tokens.T.contiguous(), is_read.T, strict=True)
        return (self._step(column)[rows] for column, rows in columns), None

    def reorder(self, order: Tensor, sentences: Tensor | None = None) -> None:
        """Continue with the hypotheses `order`, (R',); `sentences` that stay, None: all."""
        rows = order.numpy()
        if sentences is not None or len(rows) != len(self._memory["padding_mask"]):
            self._memory = {name: part[rows] for name, part in self._memory.items()}
        self._state = {name: part[rows] for name, part in self._state.items()}


def _facts(path: Path) -> dict[str, Any]:
    """Return the content of graphs.json."""
    content = read_small(path)
    try:
        facts = loads(content)
        numbers = [facts["pad"], facts["eos"], *(facts["longest"][side] for side in ("source", "target"))]
        numbers += [number for shape in facts["starts"].values() for number in shape]
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError(f"{numbers!r:.50} are no sizes")
        if "files" in facts and facts != sealed(facts):
            raise ValueError("it was changed")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is damaged or none that posnet-export wrote ({error!s:.100}). {AGAIN}") from error
    return facts
