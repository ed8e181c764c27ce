"""What tests/first_hour.sh runs: the commands of README.md as a script of bash, and a comparison of what they printed.

python -m support.first_hour script          print the script; it runs at the root of a copy of the checkout
python -m support.first_hour check FOLDER    compare the output that the script has left in FOLDER with README.md
"""

import re
import shlex
import sys
from pathlib import Path

from support import documents

README = documents.ROOT / "README.md"

# Commands that are left out, by a pattern of how they begin, and why.
LEFT_OUT = {
    r"pip install ": "for environments of one's own: tests/end_to_end/test_installed.py",
    r"bash tests/run\.sh": "it runs this walk",
}
# What is put behind commands that match a pattern, so that they end within minutes.
BEHIND = {
    # Two validations, and translations of few tokens: models of so few updates have nothing to say.
    r"bash recipes/quickstart\.sh": "--updates 12 --interval 6 --beam 1 --max-len-a 0 --max-len-b 8",
    r"bash recipes/(wmt|compare)|posnet-run (corpus|compare) ": "--dry-run",
    r"fairseq-train .*--arch \w+_base ": f"--cpu {documents.ONE_LAYER} {documents.NARROW} --max-tokens 400 "
    "--update-freq 1 --max-update 8 --save-interval-updates 1",
}
# The texts that a user would bring, made of those that the quickstart downloads; and what Python 3.14 needs.
GIVEN = """
text=data/quickstart.en-de
for language in en de; do
    head -n 3000 "$text/train.$language" >my.$language
    tail -n 40 "$text/test.$language" >test.$language
done
cp test.de base.de
if .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 14))'; then
    # As docs/troubleshooting.md says.
    fairseq-train() { python -P posnet_fairseq/fairseq_plugin/optional_types.py fairseq-train "$@"; }
fi
"""
# step LINE COMMAND runs a command of README.md; made LINE PATH looks whether it wrote what it names.
STEP = """
failed() { echo "README.md:$1: $2" >&2; exit 1; }
step() {
    echo "README.md:$1: $2" >&2
    eval "$2" >../output.$1 || failed $1 "ended with $?"
}
made() { [ -e "$2" ] || failed $1 "$2 was not made"; }
"""
_MAKES = re.compile(r"--(out|output|save-dir)")


def blocks():
    """(line, language, content) of each block of README.md."""
    return documents.blocks(README.read_text(encoding="utf-8"))


def matching(patterns, text):
    """The values of the patterns that a command begins with."""
    return [value for pattern, value in patterns.items() if re.match(pattern, text)]


def statements():
    """(line, text) of each command in blocks of README.md."""
    for line, language, content in blocks():
        if language == "bash":
            for number, statement in documents.statements(line, content):
                yield number, re.sub(r"\s+# .*", "", statement)


def commands():
    """(line, text as it is run) of the commands that are not left out."""
    for number, text in statements():
        if not matching(LEFT_OUT, text):
            yield number, " ".join((text, *matching(BEHIND, text)))


def made(text):
    """The files and folders that a command's options say it writes."""
    words = shlex.split(text)
    return [words[at + 1] for at, word in enumerate(words[:-1]) if _MAKES.fullmatch(word)]


def script():
    """The walk, a script of bash."""
    lines = [STEP.strip()]
    for line, text in commands():
        lines.append(f"step {line} {shlex.quote(text)}")
        lines += [f"made {line} {shlex.quote(path)}" for path in made(text)]
        if "quickstart.sh" in text:
            lines.append(GIVEN.strip())
    return "\n".join(lines)


def shape(line):
    """A printed line without what differs from run to run: numbers, marks of significance, width of columns."""
    line = re.sub(r"_u\d+|[†‡][↑↓=]*", "", line)
    return " ".join(re.sub(r"\d[\d.,]*", "#", line).split())


def differences(folder):
    """Lines that README.md shows and the walk did not print, in the order of README.md.

    Translations of the quickstart are those of a long training: of its samples, only the sources are expected.
    """
    printed = None
    for line, language, content in blocks():
        if language == "bash":
            ran = [number for number, _ in documents.statements(line, content)]
            files = [folder / f"output.{number}" for number in ran]
            printed = "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
        elif not language and printed:
            shown = [text for text in content.split("\n") if text.strip()]
            samples = next((at for at, text in enumerate(shown) if text.lstrip().startswith("source ")), len(shown))
            there, words = iter(map(shape, printed.split("\n"))), set(printed.split())
            for text in shown[:samples]:
                # Speeds of a busy machine are marked by stars, which break the heads of columns at other places.
                if "*" in words and not re.search(r"\d", text) and words.issuperset(text.split()):
                    continue
                if shape(text) not in there:  # which goes on behind the line that it has found
                    yield f"README.md shows behind line {line - 1}, and the command does not print: {text}"
                    break


if __name__ == "__main__":
    if sys.argv[1] == "script":
        print(script())
    else:
        found = list(differences(Path(sys.argv[2])))
        sys.exit("\n".join(found) or None)
