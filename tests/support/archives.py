"""Small archives in the layouts of the published ones, made of invented sentences."""

import gzip
import hashlib
import io
import random
import tarfile
from dataclasses import replace
from itertools import chain

from posnet_data_prep.sources.archives import ARCHIVES

_WORDS = {
    "en": "the old house door opens slowly and a cat sleeps under it while rain falls on every garden of our town",
    "de": "das alte Haus Tür öffnet langsam und eine Katze schläft darunter während Regen auf jeden Garten fällt",
    "fr": "la vieille maison porte s'ouvre lentement et un chat dort dessous pendant que l'eau tombe sur chaque jardin",
    "zh": "老 房子 的 门 慢慢 打开 一 只 猫 睡 在 下面 雨 落 在 我们 城市 每 个 花园 里",
}
# Characters of real text; each ends some sentence.
_MARKS = {
    "en": ["R&D", "it’s", "“quoted”", "twenty-one", "5,300.50", "a\u2028b", "x\x0by", "&amp;", "c\u00a0d", "1/2", ""],
    "de": ["F&E", "geht’s", "„gesagt“", "ein-zwei", "5.300,50", "a\u0085b", "x\x1fy", "&quot;", "c\u200bd", "…", ""],
    "fr": ["R&D", "c’est", "«\xa0dit\xa0»", "un-deux", "5\xa0300", "quoi\xa0?", "", "&lt;", "œuvre", "…", "a\tb"],
    "zh": ["，", "。", "《书》", "（一）", "“引”", "Python 3.5", "、", "！", "", "％", "：再"],
}


def sentences(source, target, count, seed):
    """Invented sentence pairs; some are too long, differ too much in length, or are empty on one side."""
    rng = random.Random(seed)
    pairs = []
    for number in range(count):
        length = rng.randint(3, 12)
        sides = []
        for language in (source, target):
            words = rng.choices(_WORDS[language].split(), k=length) + [rng.choice(_MARKS[language])]
            sides.append(("" if language == "zh" else " ").join(words) + ("。" if language == "zh" else "."))
        if number % 17 == 5:
            sides[1] = sides[1] * 4  # by its ratio
        if number % 29 == 7:
            sides = [f"{side} " * 60 for side in sides]  # by its length
        if number % 31 == 9:
            sides[number % 2] = rng.choice(["", " ", "\u3000"])
        pairs.append(tuple(sides))
    return pairs


def text(lines, end="\n"):
    return "".join(f"{line}{end}" for line in lines).encode()


def tar(members, mode="w:gz"):
    """A tar archive of a dict from path to bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for path, data in members.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def tagged(talks):
    """IWSLT's training text: of each talk its tags, then its sentences."""
    lines = []
    for number, talk in enumerate(talks):
        lines += [f"<url>http://www.ted.com/talks/{number}</url>", f"<keywords>talks, number {number}</keywords>"]
        lines += [f"<talkid>{number}</talkid>", f"<title>Speaker {number}: A talk</title>"]
        lines += [f"<description>TED Talk Subtitles {number}</description>", *talk]
    return lines


def xml(lines, side):
    """IWSLT's test text: two documents, segments with spaces around."""
    kind = "srcset" if side == "src" else "refset"
    half = len(lines) // 2
    out = ['<?xml version="1.0" encoding="UTF-8"?>', "<mteval>", f'<{kind} setid="iwslt2014" srclang="german">']
    for number, part in enumerate((lines[:half], lines[half:])):
        out += [f'<doc docid="{number}" genre="lectures">', f"<title>Title {number}</title>"]
        out += [f'<seg id="{index}"> {line} </seg>' for index, line in enumerate(part, 1)] + ["</doc>"]
    return [*out, f"</{kind}>", "</mteval>"]


def sgm(lines, side):
    """WMT's test text: documents whose segments are counted anew, no header, unescaped quotes."""
    kind = "srcset" if side == "src" else "refset"
    out = [f'<{kind} setid="newstest" srclang="any">']
    for begin in range(0, len(lines), 5):
        out += [f'<doc sysid="ref" docid="paper {begin}" genre="news" origlang="en">', "<p>"]
        out += [f'<seg id="{index}">{line}</seg>' for index, line in enumerate(lines[begin : begin + 5], 1)]
        out += ["</p>", "</doc>"]
    return [*out, f"</{kind}>"]


def _corpus(template, pairs, languages, end="\n"):
    return {template.format(lang=name): text([pair[i] for pair in pairs], end) for i, name in enumerate(languages)}


def _test_set(template, pairs, languages):
    sides = zip(("src", "ref"), languages, (0, 1), strict=True)
    lines = {(side, name): [" ".join(pair[i].split()) for pair in pairs] for side, name, i in sides}
    return {template.format(side=s, lang=n): text(sgm(lines[s, n], s)) for s, n in lines}


def iwslt14():
    """Contents of the archives by their keys, pairs of the training text (with titles), pairs of the test text."""
    train = sentences("de", "en", 400, 1)
    talks = [train[:150], train[150:]]
    members = {
        f"./texts/de-en/train.tags.de-en.{name}": text(
            tagged([[pair[i] for pair in talk] for talk in talks]), "\r\n" if name == "en" else "\n"
        )
        for i, name in enumerate(("de", "en"))
    }
    expected = []
    for number, talk in enumerate(talks):
        expected += [(f"Speaker {number}: A talk",) * 2, (f"TED Talk Subtitles {number}",) * 2, *talk]
    tests = []
    for seed, name in enumerate(("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")):
        pairs = [tuple(" ".join(side.split()) for side in pair) for pair in sentences("de", "en", 12, 50 + seed)]
        tests += pairs
        for i, (language, side) in enumerate((("de", "src"), ("en", "ref"))):
            path = f"./texts/de-en/IWSLT14.{name}.de-en.{language}.xml"
            members[path] = text(xml([pair[i] for pair in pairs], side))
    members["./texts/de-en/README"] = b"invented"
    return {"ted": tar(members)}, expected, tests


def wmt14_de():
    """Contents of WMT14 English to German, as :func:`iwslt14` returns them."""
    names = ("en", "de")
    parts = [sentences("en", "de", count, seed) for count, seed in ((300, 2), (200, 3), (50, 4))]
    test = sentences("en", "de", 23, 5)
    europarl = _corpus("training/europarl-v7.de-en.{lang}", parts[0], names)
    europarl |= {"training/europarl-v7.cs-en.en": b"not asked for\n"}
    contents = {
        "europarl": tar(europarl),
        "commoncrawl": tar(_corpus("commoncrawl.de-en.{lang}", parts[1], names, "\r\n")),
        "nc-v12": tar(_corpus("training/news-commentary-v12.de-en.{lang}", parts[2], names)),
        "wmt14-test": tar(_test_set("test-full/newstest2014-deen-{side}.{lang}.sgm", test, names)),
    }
    return contents, list(chain(*parts)), test


def wmt14_fr():
    """Contents of WMT14 English to French, as :func:`iwslt14` returns them; one archive is a tar of gzip files."""
    names = ("en", "fr")
    parts = [sentences("en", "fr", count, seed) for count, seed in ((900, 6), (300, 7), (800, 8), (100, 9), (900, 10))]
    test = sentences("en", "fr", 11, 11)
    giga = _corpus("giga-fren.release2.fixed.{lang}.gz", parts[4], names)
    contents = {
        "europarl": tar(_corpus("training/europarl-v7.fr-en.{lang}", parts[0], names)),
        "commoncrawl": tar(_corpus("./commoncrawl.fr-en.{lang}", parts[1], names)),
        "un": tar(_corpus("un/undoc.2000.fr-en.{lang}", parts[2], names)),
        "nc-v9": tar(_corpus("training/news-commentary-v9.fr-en.{lang}", parts[3], names)),
        "giga": tar({path: gzip.compress(data) for path, data in giga.items()}, "w"),
        "wmt14-test": tar(_test_set("test-full/newstest2014-fren-{side}.{lang}.sgm", test, names)),
    }
    return contents, list(chain(*parts)), test


def wmt18_zh():
    """Contents of WMT18 English to Chinese, as :func:`iwslt14` returns them."""
    names = ("en", "zh")
    parts = [sentences("en", "zh", count, seed) for count, seed in ((400, 12), (2600, 13))]
    test = sentences("en", "zh", 9, 14)
    contents = {
        "nc-v13": tar(_corpus("training-parallel-nc-v13/news-commentary-v13.zh-en.{lang}", parts[0], names)),
        "un-v1": tar(_corpus("en-zh/UNv1.0.en-zh.{lang}", parts[1], names)),
        "wmt17-test": tar(_test_set("test/newstest2017-enzh-{side}.{lang}.sgm", test, names)),
    }
    return contents, list(chain(*parts)), test


def expect(contents, server):
    """Entries for ARCHIVES, like the published ones, for other contents that `server` serves."""
    entries = {}
    for key, content in contents.items():
        archive = ARCHIVES[key]
        algorithm = archive.digest.partition(":")[0]
        found = f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
        size = None if archive.size is None else len(content)
        if " " in archive.urls[0]:  # served in two parts
            half = len(content) // 3
            server.files |= {f"/{archive.name}.00": content[:half], f"/{archive.name}.01": content[half:]}
            urls = f"{server.url}/{archive.name}.00 {server.url}/{archive.name}.01"
        else:
            server.files[f"/{archive.name}"] = content
            urls = f"{server.url}/{archive.name}"
        entries[key] = replace(archive, urls=(urls,), size=size, digest=found)
    return entries


MADE = {
    "iwslt14.de-en": (iwslt14, ("de", "en"), ["60"]),
    "wmt14.en-de": (wmt14_de, ("en", "de"), ["60"]),
    "wmt14.en-fr": (wmt14_fr, ("en", "fr"), ["60"]),
    "wmt18.en-zh": (wmt18_zh, ("en", "zh"), ["200", "20"]),
}
