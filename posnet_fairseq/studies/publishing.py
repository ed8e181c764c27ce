"""Everything that is made of the results of a study: its tables and its pictures."""

from pathlib import Path

from posnet_fairseq.plots import style
from posnet_fairseq.shared.files import check_folder, replacing
from posnet_fairseq.studies import pictures, results, tables
from posnet_fairseq.studies.analysis import Analysis
from posnet_fairseq.studies.protocol import read_study


def publish(name: str, folder: Path, out: Path) -> list[Path]:
    """Write the tables of a study and draw it.

    Args:
        name: of the study.
        folder: of its results.
        out: folder of what is made, which is made if need be.

    Returns:
        The paths of what was made.

    Raises:
        UsageError: there is no such study, it has no results, or something stands in the way.
    """
    study = read_study(name)
    check_folder(out)
    analysis = Analysis(study, results.read_all(folder, study))
    path = out / f"{name}.md"
    out.mkdir(parents=True, exist_ok=True)
    style.refuse_foreign([path, *pictures.files(analysis, out)])
    with replacing(path) as temporary:
        temporary.write_text(f"<!-- {style.MAKER} -->\n\n{tables.markdown(analysis)}", encoding="utf-8")
    return [path, *pictures.draw(analysis, out)]
