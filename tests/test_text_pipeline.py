import pytest
from subword_nmt.learn_bpe import learn_bpe

from posnet_fairseq.errors import UsageError
from posnet_fairseq.text_pipeline import MosesBPE, SentencePieces


@pytest.fixture
def codes(tmp_path):
    with open(tmp_path / "codes", "w") as file:
        learn_bpe(["open the door please", "open all doors please"] * 5, file, 10)
    return tmp_path / "codes"


def test_moses_bpe_splits_words_and_joins_them_again(codes):
    pipeline = MosesBPE("en", "en", codes)
    tokens = pipeline.encode("Don't open the doors, please.")
    assert "@@" in tokens
    assert "&apos;t" in tokens.replace("@@ ", "")
    assert pipeline.decode(tokens) == "Don't open the doors, please."


def test_missing_models_are_named(tmp_path):
    with pytest.raises(UsageError, match="none: there is no such file"):
        MosesBPE("en", "de", tmp_path / "none")
    with pytest.raises(UsageError, match="none: there is no such file"):
        SentencePieces(tmp_path / "none")
