"""Translation with the graphs that :mod:`posnet_fairseq.inference.onnx` writes, without torch."""

import json
from pathlib import Path

import numpy


class OnnxTranslator:
    """Translates greedily with onnxruntime: the best next token at each step.

    Args:
        folder: directory that posnet-export wrote with ``--onnx``.
        int8: use the graphs with 8-bit weights.
    """

    def __init__(self, folder: str | Path, int8: bool = False) -> None:
        import onnxruntime

        folder, end = Path(folder), ".int8" if int8 else ""
        self.facts = json.loads((folder / "graphs.json").read_text())
        self.encoder, self.step = (
            onnxruntime.InferenceSession(str(folder / f"{name}{end}.onnx"), providers=["CPUExecutionProvider"])
            for name in ("encoder", "step")
        )

    def translate(self, sources: numpy.ndarray, max_length: int) -> list[list[int]]:
        """Token ids of the translation of each source, the end symbol included.

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


def until(tokens: list[int], eos: int) -> list[int]:
    """Token ids up to the first end symbol, which is included."""
    return tokens[: tokens.index(eos) + 1] if eos in tokens else tokens
