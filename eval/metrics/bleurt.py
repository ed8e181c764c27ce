"""BLEURT: a BERT that has learned to tell how well a sentence says what another one says (arXiv:2004.04696)."""

from posnet_eval.metrics import model_files
from posnet_eval.metrics.networks import batches, fill, quiet, read_weights, reading, spread
from posnet_eval.metrics.neural_metric import NeuralMetric
from posnet_fairseq.shared.errors import UsageError

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
MODEL = model_files.Kind(
    what="a BLEURT model",
    flag="--bleurt-model",
    owner="lucadiliello",
    files=("config.json", *_WEIGHTS, *model_files.TOKENIZER),
    needed=(("config.json",), _WEIGHTS, ("spm.model", "tokenizer.json", "vocab.txt")),
)

LONGEST = 512  # tokens of reference and hypothesis together
_CHUNK = 512  # pairs that are tokenised at once
_TOKENS = {"cpu": 2048, "cuda": 16384}  # in a batch


class Bleurt(NeuralMetric):
    """BLEURT of the port to PyTorch, bleurt-pytorch."""

    name = "bleurt"
    label = "BLEURT"
    package = "bleurt-pytorch"
    extra = "bleurt"

    @property
    def given(self):
        """Name or folder of the model."""
        return model_files.as_given(self.options.bleurt_model)

    def find(self, download=True):
        """See :meth:`NeuralMetric.find`."""
        self.check_installed()
        given = self.options.bleurt_model
        files = MODEL.present(model_files.find(given, MODEL, download=download))
        if _WEIGHTS[0] in files:
            files.pop(_WEIGHTS[1], None)  # the same weights a second time
        return model_files.short_name(given), files

    def load(self):
        """See :meth:`NeuralMetric.load`."""
        _, files = self.find()
        folder = files["config.json"].parent
        weights = next(files[name] for name in _WEIGHTS if name in files)
        with quiet():
            from bleurt_pytorch import BleurtConfig, BleurtForSequenceClassification
            from bleurt_pytorch.bleurt.tokenization_bleurt_fast import BleurtTokenizerFast
            from bleurt_pytorch.bleurt.tokenization_bleurt_sp import BleurtSPTokenizer

            # BleurtForSequenceClassification.from_pretrained would put random numbers where weights are missing.
            with reading(folder, "config.json"):
                config = BleurtConfig.from_pretrained(folder)
                network = BleurtForSequenceClassification(config)
            if config.num_labels != 1:
                raise UsageError(f"{folder} is no BLEURT model: it has {config.num_labels} outputs, BLEURT has one.")
            unsafe = "No BLEURT model needs that; take the file from another place."
            fill(network, read_weights(weights, unsafe), weights)
            with reading(folder, "the tokeniser"):
                kind = BleurtSPTokenizer if "spm.model" in files else BleurtTokenizerFast
                tokenizer = kind.from_pretrained(folder)
                if not tokenizer:  # transformers gives False for a damaged spm.model
                    raise ValueError("spm.model is damaged")
        return network.eval(), tokenizer

    def score(self, segments):
        """Scores of batches of pairs of reference and hypothesis."""
        return spread(_scores, self._batches(segments), self.networks)

    def _batches(self, segments):
        """Yields (positions, dict of tensors)."""
        network, tokenizer = self.networks[0], self.tokenizer
        longest = min(LONGEST, network.config.max_position_embeddings)
        pairs = [(reference, hypothesis) for _, hypothesis, (reference,) in segments]
        order = sorted(range(len(pairs)), key=lambda position: -sum(len(text.encode()) for text in pairs[position]))
        for start in range(0, len(order), _CHUNK):
            chunk = order[start : start + _CHUNK]
            references, hypotheses = zip(*(pairs[position] for position in chunk), strict=True)
            encoded = tokenizer(list(references), list(hypotheses), truncation=True, max_length=longest)
            for positions, inputs in batches(tokenizer, encoded, _TOKENS[network.device.type]):
                yield [chunk[position] for position in positions], inputs


def _scores(network, batch):
    """Positions and scores of a batch."""
    import torch

    positions, inputs = batch
    with torch.inference_mode():
        scores = network(**inputs.to(network.device)).logits.squeeze(1)
    return positions, scores.cpu().numpy()
