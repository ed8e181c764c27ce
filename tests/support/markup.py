"""Text in SGML of WMT and in its XML."""

from html import escape

DOCUMENT = 20  # segments of a document


def sgml(lines, kind="refset", system="ref"):
    """Lines of SGML with documents."""
    found = [f'<{kind} setid="test" srclang="en" trglang="de">']
    for start in range(0, len(lines), DOCUMENT):
        found.append(f'<DOC docid="{start}" genre="news"{f" sysid={system}" if system else ""}>')
        found += [f'<seg id="{n}">{escape(line)}</seg>' for n, line in enumerate(lines[start : start + DOCUMENT], 1)]
        found.append("</DOC>")
    return [*found, f"</{kind}>"]


def xml(lines, element='hyp system="A"'):
    """Lines of XML, two segments in a line."""
    cut = [f'<seg id="{n}">{escape(line)}</seg>' for n, line in enumerate(lines, 1)]
    paired = ["".join(cut[n : n + 2]) for n in range(0, len(cut), 2)]
    name = element.split()[0]
    head = ['<?xml version="1.0" encoding="UTF-8"?>', '<dataset id="test"><doc id="1" origlang="en">']
    return [*head, f"<{element}><p>", *paired, f"</p></{name}>", "</doc></dataset>"]
