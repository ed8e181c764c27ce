"""The sizes of PosNet's Table 1, where the real archives are (POSNET_DOWNLOADS, or the folder of posnet-prepare)."""

import json
import os
from pathlib import Path

import pytest

from posnet_data_prep import prepare
from posnet_data_prep.datasets import DATASETS
from posnet_data_prep.sources.archives import ARCHIVES

DOWNLOADS = Path(os.environ.get("POSNET_DOWNLOADS", Path.home() / ".cache/posnet"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, of in DATASETS.items() if len(of.pairs) > 1])
def test_as_many_pairs_as_the_paper_has(name, tmp_path):
    dataset = DATASETS[name]
    if not all((DOWNLOADS / archive.name).exists() for archive in dataset.files):
        pytest.skip(f"the archives of {name} are not in {DOWNLOADS}")
    prepare.main([name, "--out", str(tmp_path / "data"), "--downloads", str(DOWNLOADS)])
    found = json.loads((tmp_path / "data/dataset.json").read_text())["sentences"]
    assert found["test"] == dataset.pairs["test"]
    # sacremoses splits some words unlike the Perl program. Rounded figures are the paper's.
    for part in ("train", "valid"):
        exact = dataset.pairs[part] % 1000 != 0
        assert found[part] == pytest.approx(dataset.pairs[part], rel=0.002 if exact else 0.03)


def test_every_archive_can_be_checked():
    """Of what is published, nothing is taken on trust."""
    for archive in ARCHIVES.values():
        algorithm, _, digest = archive.digest.partition(":")
        assert len(digest) == {"md5": 32, "sha1": 40, "sha256": 64}[algorithm]
        assert archive.urls
        assert archive.license
    assert len({archive.name for archive in ARCHIVES.values()}) == len(ARCHIVES)
