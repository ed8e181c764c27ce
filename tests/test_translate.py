import gzip
import random

import pytest

from posnet_fairseq.cli import translate
from posnet_fairseq.inference.translator import batches_by_length
from support.checkpoints import checkpoint
from support.markup import sgml


@pytest.mark.parametrize("max_tokens", [1, 10, 50, 10**6])
def test_batches_hold_every_index_once_and_few_tokens(max_tokens):
    generator = random.Random(1)
    lengths = [generator.randint(1, 30) for _ in range(200)]
    batches = batches_by_length(lengths, max_tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(200))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= max_tokens


def test_no_sentences_no_batches():
    assert batches_by_length([], 100) == []


@pytest.mark.parametrize("pretokenized", [True, False])
def test_the_text_in_compressed_sgml_is_translated(tmp_path, capsys, pretokenized):
    model = checkpoint(tmp_path / "model.pt")
    merges = tmp_path / "codes"
    merges.write_text("#version: 0.2\nw 1</w>\n")
    options = ["--pretokenized"] if pretokenized else ["--bpe-codes", str(merges)]
    lines = ["w1 w2", "w3@@ w4", "w5"]
    (tmp_path / "plain").write_text("\n".join(lines))
    (tmp_path / "sgml").write_bytes(gzip.compress("\n".join(sgml(lines, "srcset", "")).encode()))
    said = []
    for name in ("plain", "sgml"):
        translate.main(
            [str(model), *options, "--cpu", "--beam", "1", "--max-len-b", "4", "--input", str(tmp_path / name)]
        )
        said.append(capsys.readouterr())
    assert said[0].out == said[1].out != ""
    assert ("has marks of subwords (@@ or ▁), and is split again" in said[1].err) == (not pretokenized)
