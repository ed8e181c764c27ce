"""Translation with the graphs that :mod:`posnet_fairseq.inference.onnx` writes, without torch."""

import json
from pathlib import Path
from typing import Any

import numpy

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import check_file, read_small
from posnet_fairseq.shared.records import digest, sealed

_AGAIN = "Copy the folder again, or export the model again."


class OnnxTranslator:
    """Translates greedily with onnxruntime: the best next token at each step.

    Args:
        folder: directory that posnet-export wrote with ``--onnx``.
        int8: use the graphs with 8-bit weights.

    Raises:
        UsageError: a file is missing or damaged, or is not the one that was written with the others.
    """

    def __init__(self, folder: str | Path, int8: bool = False) -> None:
        import onnxruntime

        folder, end = Path(folder), ".int8" if int8 else ""
        self.facts = _facts(folder / "graphs.json")

        def graph(name: str) -> onnxruntime.InferenceSession:
            path = folder / f"{name}{end}.onnx"
            check_file(path)
            hashes = self.facts.get("files", {})  # graphs of posnet 0.2.0 have none
            if hashes and digest(path, "sha256") != hashes.get(path.name):
                raise UsageError(f"{path} is not the file that graphs.json was written with. {_AGAIN}")
            try:
                return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            except Exception as error:  # onnxruntime has a dozen kinds, which have no class in common
                raise UsageError(f"{path} is damaged or no graph ({str(error).strip():.100}). {_AGAIN}") from error

        self.encoder, self.step = map(graph, ("encoder", "step"))

    def translate(self, sources: numpy.ndarray, max_length: int) -> list[list[int]]:
        """Return token ids of the translation of each source, the end symbol included.

        Args:
            sources: (B, M) token ids with end symbols, padded on the right.
            max_length: most tokens of a translation.
        """
        names = [output.name for output in self.encoder.get_outputs()]
        state = dict(zip(names, self.encoder.run(None, {"tokens": sources}), strict=True))
        for name, shape in self.facts["starts"].items():
            state[name] = numpy.zeros((len(sources), *shape), dtype=numpy.float32)
        tokens = numpy.full(len(sources), self.facts["eos"])
        translations, ended = [], numpy.zeros(len(sources), dtype=bool)
        for position in range(max_length):
            scores, *new = self.step.run(None, state | {"tokens": tokens, "position": numpy.array([position])})
            state |= dict(zip(self.facts["starts"], new, strict=True))
            scores[:, self.facts["pad"]] = -numpy.inf
            tokens = scores.argmax(axis=1)
            translations.append(tokens)
            ended |= tokens == self.facts["eos"]
            if ended.all():
                break
        return [until(row, self.facts["eos"]) for row in numpy.stack(translations, axis=1).tolist()]


def _facts(path: Path) -> dict[str, Any]:
    """Return the content of graphs.json."""
    content = read_small(path)
    try:
        facts = json.loads(content)
        numbers = [facts["pad"], facts["eos"], *(number for shape in facts["starts"].values() for number in shape)]
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError(f"{numbers!r:.50} are no sizes")
        if "files" in facts and facts != sealed(facts):
            raise ValueError("it was changed")
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is damaged or none that posnet-export wrote ({error!s:.100}). {_AGAIN}") from error
    return facts


def until(tokens: list[int], eos: int) -> list[int]:
    """Return token ids up to the first end symbol, which is included."""
    return tokens[: tokens.index(eos) + 1] if eos in tokens else tokens
