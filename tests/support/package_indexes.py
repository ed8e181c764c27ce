"""Invented indexes of package descriptions, and an apt-get that serves them."""

import hashlib
import random
from pathlib import Path

NAME = "dists_bookworm_main_i18n_Translation-{}"


def record(package, language, short, *lines, english=None):
    """A record of an index; `english` is the text whose hash it has."""
    key = hashlib.md5((english or short).encode()).hexdigest()
    return "\n".join(
        [f"Package: {package}", f"Description-md5: {key}", f"Description-{language}: {short}", *lines, "\n"]
    )


def invented(language, packages=60):
    """An index of packages with three paragraphs each, in words that differ from package to package."""
    records = []
    for number in range(packages):
        words = random.Random(f"{language} {number}")
        texts = [" ".join(_word(words) for _ in range(6)) for _ in range(3)]
        records.append(
            record(f"package{number:03}", language, texts[0], f" {texts[1]}", " .", f" {texts[2]}", english=str(number))
        )
    return "".join(records)


def _word(words):
    return "".join(words.choice("abcdefghiklmnoprstuw") for _ in range(6))


def write_indexes(folder, **texts):
    """Write indexes, one for each language; without any, those of English and German."""
    folder.mkdir(exist_ok=True)
    for language, text in (texts or {"en": invented("en"), "de": invented("de")}).items():
        (folder / NAME.format(language)).write_text(text, encoding="utf-8")
    return folder


def install_apt_get(folder, script):
    """Put a shell script in the place of apt-get. Its variables LISTS and LANGUAGE are apt's options.

    Returns:
        folder to put in front of PATH.
    """
    folder.mkdir()
    program = folder / "apt-get"
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {folder}/calls\n'
        'for word in "$@"; do case $word in\n'
        "--option=Dir::State::lists=*) LISTS=${word##*=};; --option=Acquire::Languages=*) LANGUAGE=${word##*=};;\n"
        "esac; done\n"
        f"{script}\n"
    )
    program.chmod(0o755)
    return folder


def serving(indexes: Path) -> str:
    """The script of an apt-get that serves the indexes of a folder."""
    name = NAME.format("$LANGUAGE")
    return (
        'case $1 in\nindextargets) echo "http://localhost/debian-security/ http://localhost/debian/";;\n'
        f'update) cp "{indexes}/{name}" "$LISTS/localhost_debian_{name}";;\nesac'
    )
