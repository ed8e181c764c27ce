"""The table of datasets that can be downloaded. Those of PosNet's paper are prepared as its Table 1 says."""

from posnet_data_prep.dataset import SMALL_TEXT, Dataset, Recipe
from posnet_data_prep.sources.debian import PackageDescriptions
from posnet_data_prep.sources.interface_texts import InterfaceTexts
from posnet_data_prep.sources.published import Corpus, Published

# Of task 1, one description of each image. The test sets of later years have other licenses or no German.
_MULTI30K: dict[str, tuple[Corpus, ...]] = {
    "train": (Corpus("multi30k.train.{lang}", lines=29),),
    "valid": (Corpus("multi30k.val.{lang}", lines=1),),
    "test": (Corpus("multi30k.test_2016_flickr.{lang}", lines=1),),
    "test1": (Corpus("multi30k.test_2017_flickr.{lang}", lines=1),),
    "test2": (Corpus("multi30k.test_2017_mscoco.{lang}", lines=1),),
}

_PARAGRAPHS = Recipe(subwords="sentencepiece", pieces=8000, clean=None)

DATASETS: dict[str, Dataset] = {
    "iwslt14.de-en": Published(
        languages=("de", "en"),
        sets={
            "train": (Corpus("ted", "de-en/train.tags.de-en.{lang}", "tagged", 174),),
            "test": tuple(
                Corpus("ted", f"de-en/IWSLT14.{name}.de-en.{{lang}}.xml", "talk_segments", 1)
                for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
            ),
        },
        recipe=Recipe(
            split_hyphens=False,
            straighten_apostrophes=True,
            lowercase=True,
            clean="words",
            max_length=175,
            valid_every=23,
            merges=(10_000,),
        ),
        pairs={"train": 160_239, "valid": 7_283, "test": 6_750},
        size="iwslt",
    ),
    "wmt14.en-de": Published(
        languages=("en", "de"),
        sets={
            "train": (
                Corpus("europarl", "training/europarl-v7.de-en.{lang}", lines=1920),
                Corpus("commoncrawl", "commoncrawl.de-en.{lang}", lines=2399),
                Corpus("nc-v12", "training/news-commentary-v12.de-en.{lang}", lines=271),
            ),
            "test": (Corpus("wmt14-test", "test-full/newstest2014-deen-{side}.{lang}.sgm", "segments", 3),),
        },
        recipe=Recipe(normalise=True, valid_every=100, merges=(40_000,)),
        pairs={"train": 3_961_179, "valid": 40_058, "test": 3_003},
    ),
    "wmt14.en-fr": Published(
        languages=("en", "fr"),
        sets={
            "train": (
                Corpus("europarl", "training/europarl-v7.fr-en.{lang}", lines=2008),
                Corpus("commoncrawl", "commoncrawl.fr-en.{lang}", lines=3244),
                Corpus("un", "un/undoc.2000.fr-en.{lang}", lines=12_887),
                Corpus("nc-v9", "training/news-commentary-v9.fr-en.{lang}", lines=183),
                Corpus("giga", "giga-fren.release2.fixed.{lang}.gz", lines=22_520),
            ),
            "test": (Corpus("wmt14-test", "test-full/newstest2014-fren-{side}.{lang}.sgm", "segments", 3),),
        },
        recipe=Recipe(normalise=True, valid_every=1333, merges=(40_000,)),
        pairs={"train": 36_000_000, "valid": 27_000, "test": 3_003},
    ),
    "wmt18.en-zh": Published(
        languages=("en", "zh"),
        sets={
            "train": (
                Corpus("nc-v13", "training-parallel-nc-v13/news-commentary-v13.zh-en.{lang}", lines=253),
                Corpus("un-v1", "en-zh/UNv1.0.en-zh.{lang}", lines=15_886),
            ),
            "test": (Corpus("wmt17-test", "test/newstest2017-enzh-{side}.{lang}.sgm", "segments", 2),),
        },
        recipe=Recipe(normalise=True, valid_every=1333, merges=(32_000, 45_000)),
        pairs={"train": 17_000_000, "valid": 13_000, "test": 2_001},
        local="cwmt",
    ),
    **{
        f"multi30k{form}.en-{target}": Published(
            languages=("en", target),
            sets=_MULTI30K,
            recipe=recipe,
            pairs={"train": 29_000, "valid": 1_014, "test": 1_000, "test1": 1_000, "test2": 461},
            title=title,
            test_sets={"test": "2016 (Flickr)", "test1": "2017 (Flickr)", "test2": "2017 (COCO)"},
            size="multi30k",
        )
        for target in ("de", "fr")
        for form, title, recipe in (
            ("", "descriptions of images", Recipe(subwords="sentencepiece", pieces=10_000, clean=None)),
            (
                "-lc",
                "the same in lower case, tokenized as in the literature",
                Recipe(normalise=True, split_hyphens=False, lowercase_first=True, clean=None),
            ),
        )
    },
    **{
        f"quickstart.en-{target}": InterfaceTexts(
            languages=("en", target),
            recipe=SMALL_TEXT,
            pairs={"train": pairs},
            title="interface texts of open-source programs",
        )
        for target, pairs in (("de", 26_243), ("fr", 14_361), ("zh", 26_696))
    },
    **{
        f"debian.en-{target}": PackageDescriptions(
            languages=("en", target),
            recipe=_PARAGRAPHS,
            pairs={"train": pairs},
            title="descriptions of Debian's packages, with apt",
        )
        for target, pairs in (("de", 25_357), ("fr", 40_634))
    },
    "study.en-de": PackageDescriptions(
        with_interface_texts=True,
        languages=("en", "de"),
        recipe=_PARAGRAPHS,
        pairs={"train": 50_777},
        title="descriptions of Debian's packages and interface texts, with a test set of each",
        test_sets={"test": "descriptions of packages", "test1": "interface texts"},
    ),
}
