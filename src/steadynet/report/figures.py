"""The files of the figures, as PNG and SVG. They need matplotlib, an optional extra."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from steadynet.errors import UserError
from steadynet.files import disk_errors, write_atomically
from steadynet.report.charts import Chart

FORMATS: dict[str, dict[str, object]] = {"png": {"dpi": 150}, "svg": {"metadata": {"Date": None}}}


def write_figures(charts: Iterable[Chart], folder: Path) -> list[Path]:
    """Write each chart as ``NAME.png`` and ``NAME.svg``.

    Args:
        charts: The charts to draw.
        folder: The folder for the files. It is made if it does not exist.

    Returns:
        The paths of the files, two for each chart.

    Raises:
        UserError: If matplotlib is not installed, or if a file cannot be written.
    """
    try:
        import matplotlib

        from steadynet.report.drawing import SETTINGS, draw
    except ImportError as error:
        raise UserError("figures need matplotlib: pip install 'steadynet[report]'") from error
    written = []
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(SETTINGS):
        for chart in charts:
            figure = draw(chart)
            for kind, options in FORMATS.items():
                path = folder / f"{file_name(chart.name)}.{kind}"
                write_atomically(path, lambda to, k=kind, o=options, f=figure: f.savefig(to, format=k, **o))  # type: ignore[misc]
                written.append(path)
    return written


def file_name(name: str) -> str:
    """Turn a name into one that is valid for a file on every system.

    >>> file_name("runs-a/b <c>")
    'runs-a-b--c-'
    """
    return "".join(letter if letter.isalnum() or letter in "-_.+" else "-" for letter in name)[:100].lstrip(".")
