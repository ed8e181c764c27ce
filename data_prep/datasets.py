"""The published datasets: where they are, what they contain, and how PosNet's paper prepares them (Table 1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posnet_data_prep.sources.archives import AptIndex, Archive, Wheel

SETS = ("train", "valid", "test")
FURTHER_TESTS = ("test1", "test2")  # fairseq's names of a second and third test set


@dataclass(frozen=True)
class Corpus:
    """Files of sentence pairs, in an archive or each by itself.

    Args:
        archive: key of :data:`ARCHIVES`, in which ``{lang}`` is the language.
        member: path in the archive, in which ``{lang}`` is the language and ``{side}`` is ``src`` or ``ref``; "" if
            the archive is the file itself.
        form: method of :class:`posnet_data_prep.sources.readers.Reader` that reads the files.
        lines: number of sentence pairs in thousands, about.
    """

    archive: str
    member: str = ""
    form: str = "plain"
    lines: int = 0


@dataclass(frozen=True)
class Recipe:
    """Settings of how text becomes tokens. Most are also options of posnet-prepare.

    Args:
        tokenizer: tokenizer of Chinese, ``jieba`` or ``characters``; other languages are tokenised as Moses does.
        normalise, split_hyphens, lowercase, lowercase_first: settings of
            :class:`posnet_fairseq.text.tokenizers.Tokenizer`.
        straighten_apostrophes: setting of the tokenizer, applied to the test set and to text to be translated only.
        clean: unit in which the lengths of training pairs are limited: ``words``, before the split and subwords, or
            ``pieces``, after them; None: pairs are not limited.
        min_length, max_length: numbers of units that each side may have.
        max_ratio: largest number of units of one side per unit of the other.
        valid_every: every N-th pair goes to the validation set; None: the corpus has a validation set.
        subwords: ``bpe``, or ``sentencepiece``, which splits plain text.
        merges: number of BPE merges learnt jointly, or one number for each language.
        pieces: vocabulary size of sentencepiece.
    """

    tokenizer: str = "jieba"
    normalise: bool = False
    split_hyphens: bool = True
    straighten_apostrophes: bool = False
    lowercase: bool = False
    lowercase_first: bool = False
    clean: str | None = "pieces"
    min_length: int = 1
    max_length: int = 250
    max_ratio: float = 1.5
    valid_every: int | None = None
    subwords: str = "bpe"
    merges: tuple[int, ...] = (10_000,)
    pieces: int = 32_000


# For the descriptions of packages.
PARAGRAPHS = Recipe(subwords="sentencepiece", pieces=8000, clean=None)

# For the quickstart's corpora and for text of one language.
SMALL_TEXT = Recipe(subwords="sentencepiece", pieces=3000, clean=None)


@dataclass(frozen=True)
class Dataset:
    """A published dataset.

    Args:
        source_lang, target_lang: two-letter codes.
        sets: corpora of each set, in order.
        recipe: how it is prepared.
        published: number of pairs of each set in the literature.
        title: a few words for the list of datasets.
        test_sets: what each of several test sets consists of.
        size: of models that are trained on it, unless another is given.
        local: folder, among the downloads, of training text that cannot be downloaded: pairs of files NAME_en.txt and
            NAME_ch.txt or NAME_cn.txt, which are used if they are there.
    """

    source_lang: str
    target_lang: str
    sets: Mapping[str, tuple[Corpus, ...]]
    recipe: Recipe
    published: dict[str, int]
    title: str = "as in PosNet's paper"
    test_sets: dict[str, str] | None = None
    size: str = "base"
    local: str | None = None

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source_lang, self.target_lang

    @property
    def corpora(self) -> list[Corpus]:
        """Corpora of all sets."""
        return [corpus for corpora in self.sets.values() for corpus in corpora]

    @property
    def archives(self) -> list[Archive]:
        """Archives of all corpora, each once."""
        return list(dict.fromkeys(archive for corpus in self.corpora for archive, _ in self.files(corpus)))

    def files(self, corpus: Corpus) -> list[tuple[Archive, str]]:
        """Archive, and path in it, of each side of a corpus: source, target."""
        sides = zip(self.languages, ("src", "ref"), strict=True)
        return [
            (ARCHIVES[corpus.archive.format(lang=language)], corpus.member.format(lang=language, side=side))
            for language, side in sides
        ]


_WMT = "for research (WMT)"
_STATMT = ("https://www.statmt.org/{0}", "https://statmt.org/{0}", "http://www.statmt.org/{0}")
_DATA = ("https://data.statmt.org/{0}", "http://data.statmt.org/{0}")


def _archive(mirrors: Sequence[str], path: str, size: int | None, digest: str, licence: str = _WMT) -> Archive:
    return Archive(path.rpartition("/")[2], tuple(url.format(path) for url in mirrors), size, digest, licence)


_UN = "https://stuncorpusprod.blob.core.windows.net/corpusfiles/UNv1.0.en-zh.tar.gz."

ARCHIVES = {
    "ted": Archive(
        "de-en.tgz",
        (
            "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",
            "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz",
            "https://wit3.fbk.eu/archive/2014-01/texts/de/en/de-en.tgz",
        ),
        19_982_877,
        "md5:10936dfdf616504ddbd844e91b94ef4a",
        "CC BY-NC-ND (TED talks)",
    ),
    "europarl": _archive(
        _STATMT,
        "wmt13/training-parallel-europarl-v7.tgz",
        657_632_379,
        "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        "no known restrictions",
    ),
    "commoncrawl": _archive(
        _STATMT,
        "wmt13/training-parallel-commoncrawl.tgz",
        918_311_367,
        "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "nc-v12": _archive(
        _DATA,
        "wmt17/translation-task/training-parallel-nc-v12.tgz",
        168_591_139,
        "sha1:d98afc59e1d753485530b377ff65f1f891d3bced",
    ),
    "nc-v9": _archive(
        _STATMT,
        "wmt14/training-parallel-nc-v9.tgz",
        80_418_416,
        "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    "un": _archive(
        _STATMT,
        "wmt13/training-parallel-un.tgz",
        2_365_634_246,
        "sha256:29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
    ),
    "giga": _archive(
        _STATMT,
        "wmt10/training-giga-fren.tar",
        2_595_102_720,
        "sha256:3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
    ),
    "wmt14-test": _archive(_STATMT, "wmt14/test-full.tgz", None, "md5:a8cd784e006feb32ac6f3d9ec7eb389a"),
    "nc-v13": _archive(
        _DATA,
        "wmt18/translation-task/training-parallel-nc-v13.tgz",
        113_157_482,
        "sha256:17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91",
    ),
    "un-v1": Archive(
        "UNv1.0.en-zh.tar.gz",
        (f"{_UN}00 {_UN}01",),
        1_386_685_703,
        "sha256:6f9c6401d5f0a49b20661324570d99fb86822d82f974748a361e19b9b886dd49",
        "free with attribution (UN)",
    ),
    "wmt17-test": _archive(_DATA, "wmt17/translation-task/test.tgz", None, "md5:86a1724c276004aa25455ae2a04cef26"),
    **{
        f"multi30k.{name}": Archive(
            f"multi30k/{name}.gz",
            (f"https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/{name}.gz",),
            size,
            f"sha256:{digest}",
            "researchers and educators, non-commercial only (Multi30k)",
        )
        for name, size, digest in (
            ("train.en", 568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
            ("train.de", 637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
            ("train.fr", 604242, "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c"),
            ("val.en", 21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
            ("val.de", 24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
            ("val.fr", 23001, "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9"),
            ("test_2016_flickr.en", 21077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
            ("test_2016_flickr.de", 22890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
            ("test_2016_flickr.fr", 22310, "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90"),
            ("test_2017_flickr.en", 19138, "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074"),
            ("test_2017_flickr.de", 21471, "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee"),
            ("test_2017_flickr.fr", 20434, "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496"),
            ("test_2017_mscoco.en", 8844, "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58"),
            ("test_2017_mscoco.de", 10230, "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338"),
            ("test_2017_mscoco.fr", 9751, "754f3072ba9f124569ba5258b32730fc1d214bbf8e0c6dfb2b74401676220db0"),
        )
    },
}

# Of task 1, one description of each image. The test sets of later years have other licences or no German.
_MULTI30K: dict[str, tuple[Corpus, ...]] = {
    "train": (Corpus("multi30k.train.{lang}", lines=29),),
    "valid": (Corpus("multi30k.val.{lang}", lines=1),),
    "test": (Corpus("multi30k.test_2016_flickr.{lang}", lines=1),),
    "test1": (Corpus("multi30k.test_2017_flickr.{lang}", lines=1),),
    "test2": (Corpus("multi30k.test_2017_mscoco.{lang}", lines=1),),
}


def _multi30k(target: str, recipe: Recipe, title: str) -> Dataset:
    return Dataset(
        "en",
        target,
        _MULTI30K,
        recipe,
        {"train": 29_000, "valid": 1_014, "test": 1_000, "test1": 1_000, "test2": 461},
        title,
        {"test": "2016 (Flickr)", "test1": "2017 (Flickr)", "test2": "2017 (COCO)"},
        size="multi30k",
    )


DATASETS = {
    "iwslt14.de-en": Dataset(
        "de",
        "en",
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
        published={"train": 160_239, "valid": 7_283, "test": 6_750},
        size="iwslt",
    ),
    "wmt14.en-de": Dataset(
        "en",
        "de",
        sets={
            "train": (
                Corpus("europarl", "training/europarl-v7.de-en.{lang}", lines=1920),
                Corpus("commoncrawl", "commoncrawl.de-en.{lang}", lines=2399),
                Corpus("nc-v12", "training/news-commentary-v12.de-en.{lang}", lines=271),
            ),
            "test": (Corpus("wmt14-test", "test-full/newstest2014-deen-{side}.{lang}.sgm", "segments", 3),),
        },
        recipe=Recipe(normalise=True, valid_every=100, merges=(40_000,)),
        published={"train": 3_961_179, "valid": 40_058, "test": 3_003},
    ),
    "wmt14.en-fr": Dataset(
        "en",
        "fr",
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
        published={"train": 36_000_000, "valid": 27_000, "test": 3_003},
    ),
    "wmt18.en-zh": Dataset(
        "en",
        "zh",
        sets={
            "train": (
                Corpus("nc-v13", "training-parallel-nc-v13/news-commentary-v13.zh-en.{lang}", lines=253),
                Corpus("un-v1", "en-zh/UNv1.0.en-zh.{lang}", lines=15_886),
            ),
            "test": (Corpus("wmt17-test", "test/newstest2017-enzh-{side}.{lang}.sgm", "segments", 2),),
        },
        recipe=Recipe(normalise=True, valid_every=1333, merges=(32_000, 45_000)),
        published={"train": 17_000_000, "valid": 13_000, "test": 2_001},
        local="cwmt",
    ),
}
for _target in ("de", "fr"):
    DATASETS[f"multi30k.en-{_target}"] = _multi30k(
        _target, Recipe(subwords="sentencepiece", pieces=10_000, clean=None), "descriptions of images"
    )
    DATASETS[f"multi30k-lc.en-{_target}"] = _multi30k(
        _target,
        Recipe(normalise=True, split_hyphens=False, lowercase_first=True, clean=None),
        "the same in lower case, tokenized as in the literature",
    )

WHEELS = tuple(
    Wheel(package, version, size, f"sha256:{digest}", "Apache-2.0")
    for package, version, size, digest in (
        ("homeassistant", "2025.12.5", 49_390_627, "de46711e0a67d5c6bd8cc6c211fd69d285deb1c75cd1c841b45b77fab9360364"),
        ("openstack-heat", "27.0.1", 2_570_142, "6eb3e0e15da4e86a3f3c21543efcf65c5848412eb1864423ce4cff56c435897f"),
        ("horizon", "27.0.0", 5_297_721, "8a981dae4fb6626e71553aa185f6e429b0b1efb86b04b0a72c3b18ee04f1f990"),
    )
)

# Source, target, number of training pairs.
QUICKSTART: dict[str, tuple[str, str, int]] = {
    "quickstart.en-de": ("en", "de", 26_243),
    "quickstart.en-fr": ("en", "fr", 14_361),
    "quickstart.en-zh": ("en", "zh", 26_696),
}

# Source, target, number of training pairs.
DEBIAN: dict[str, tuple[str, str, int]] = {
    "debian.en-de": ("en", "de", 25_357),
    "debian.en-fr": ("en", "fr", 40_634),
}

# Descriptions of packages together with interface texts.
STUDY: dict[str, tuple[str, str, int]] = {"study.en-de": ("en", "de", 50_777)}


def debian_indexes(languages: Sequence[str]) -> list[AptIndex]:
    """The descriptions of Debian's packages in each language."""
    return [AptIndex("bookworm", "main", language) for language in languages]
