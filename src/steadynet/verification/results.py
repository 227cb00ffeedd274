"""The results of a verification from Python: a sequence that prints, summarises and draws itself."""

from __future__ import annotations

import base64
import html
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import Tensor

from steadynet.errors import UserError
from steadynet.training.notation import written_radius
from steadynet.verification.properties import Result, Verdict

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

WORDS = {
    Verdict.UNSAT: "proved",
    Verdict.SAT: "refuted",
    Verdict.TIMEOUT: "timed out",
    Verdict.UNKNOWN: "unknown",
    Verdict.ERROR: "error",
}
COLOURS = {Verdict.UNSAT: "#2a7d4f", Verdict.SAT: "#b3362b"}
MOST_ROWS = 20  # of the table in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Results(Sequence[Result]):
    """The results of properties, in the order of their images.

    Attributes:
        results: One result per image.
        images: The images.
        labels: The label that each image should keep.
        eps: The radius; None for another region.
        region: What the region is, in words, if it is no ε-box.

    Example:
        >>> results = Results((Result(Verdict.UNSAT, 0.1),), torch.zeros(1, 4), torch.tensor([3]), 0.1)
        >>> results
        Results(ε 0.1: 1 of 1 proved, 0 refuted; 0.1 s)
        >>> results[0].verdict.value, results.summary()["proved"]
        ('unsat', 1)
    """

    results: tuple[Result, ...]
    images: Tensor
    labels: Tensor
    eps: float | None
    region: str = ""

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        if isinstance(index, slice):
            return Results(self.results[index], self.images[index], self.labels[index], self.eps, self.region)
        return self.results[index]

    def summary(self) -> dict[str, Any]:
        """Return the radius, the number of properties, how many have each verdict, and the seconds they took."""
        counts = Counter(result.verdict for result in self.results)
        found: dict[str, Any] = {"eps": self.eps, "properties": len(self)}
        found |= {word: counts[verdict] for verdict, word in WORDS.items()}
        return found | {"seconds": sum(result.seconds for result in self.results)}

    def __repr__(self) -> str:
        found = self.summary()
        others = [f", {found[word]:.0f} {word}" for word in ("timed out", "unknown", "error") if found[word]]
        where = self.region if self.eps is None else f"ε {written_radius(self.eps)}"
        return (
            f"Results({where}: {found['proved']:.0f} of {len(self)} proved, {found['refuted']:.0f} refuted"
            f"{''.join(others)}; {found['seconds']:.2g} s)"
        )

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with one row per property. It needs the package pandas."""
        try:
            import pandas
        except ImportError as error:
            raise UserError("to_pandas needs the package pandas: pip install 'steadynet[notebook]'") from error
        return pandas.DataFrame(
            {
                "label": self.labels.tolist(),
                "eps": self.eps,
                "verdict": [result.verdict.value for result in self.results],
                "seconds": [result.seconds for result in self.results],
                "margin": [result.margin for result in self.results],
                "stable_share": [result.stable_share for result in self.results],
                "subproblems": [result.subproblems for result in self.results],
                "decided_by": [str(result.decided_by) for result in self.results],
                "reason": [result.reason for result in self.results],
            }
        )

    def plot(self, most: int = 8) -> Figure:
        """Draw images with their verdicts, and counterexamples below those that were refuted. It needs matplotlib.

        Args:
            most: How many images to draw at most; refuted ones come first.

        Returns:
            The figure, which notebooks show.
        """
        order = sorted(range(len(self)), key=lambda index: self.results[index].verdict is not Verdict.SAT)[:most]
        figure = _empty_figure(1.6 * max(len(order), 2), 3.6)
        axes = figure.subplots(2, max(len(order), 1), squeeze=False)
        for column, index in enumerate(order):
            result = self.results[index]
            pictures = (self.images[index], result.counterexample)
            titles = (f"{int(self.labels[index])}: {WORDS[result.verdict]}", "counterexample")
            for axis, picture, title in zip(axes[:, column], pictures, titles, strict=True):
                axis.set_axis_off()
                if picture is not None:
                    axis.imshow(_pixels(picture), cmap="gray", vmin=0, vmax=1)
                    axis.set_title(title, fontsize=9, color=COLOURS.get(result.verdict, "#555555"))
        figure.suptitle(repr(self).removeprefix("Results(").removesuffix(")"), fontsize=10)
        return figure

    def _repr_html_(self) -> str:
        """Return a table with thumbnails, which notebooks show."""
        shown = range(min(len(self), MOST_ROWS))
        rows = "".join(self._row(index) for index in shown)
        left_out = f"<p>… and {len(self) - len(shown)} more</p>" if len(self) > len(shown) else ""
        return (
            f"<p><b>{html.escape(repr(self))}</b></p><table><thead><tr><th>image</th><th>label</th><th>verdict</th>"
            f"<th>counterexample</th><th>seconds</th><th>decided by</th></tr></thead><tbody>{rows}</tbody></table>"
            f"{left_out}"
        )

    def _row(self, index: int) -> str:
        result = self.results[index]
        colour = COLOURS.get(result.verdict, "#555555")
        point = "" if result.counterexample is None else _thumbnail(result.counterexample, "counterexample")
        said = html.escape(str(result.decided_by) or result.reason)
        return (
            f"<tr><td>{_thumbnail(self.images[index], 'image')}</td><td>{int(self.labels[index])}</td>"
            f"<td style='color:{colour}'>{WORDS[result.verdict]}</td><td>{point}</td><td>{result.seconds:.2g}</td>"
            f"<td>{said}</td></tr>"
        )


def _empty_figure(width: float, height: float) -> Figure:
    """Return a figure that notebooks show, although it was made without ``matplotlib.pyplot``. Sizes are in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("plot needs the package matplotlib: pip install 'steadynet[notebook]'") from error

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png")
            return buffer.getvalue()

    return ShownFigure(figsize=(width, height), layout="constrained")


def _pixels(image: Tensor) -> np.ndarray[Any, Any]:
    """Return an image as (H, W) or (H, W, 3) for drawing; flat features as one row."""
    values = image.detach().cpu().to(torch.float32).clamp(0, 1).numpy()
    if values.ndim == 4:  # a pair of images, side by side
        values = np.concatenate(list(values), axis=2)
    if values.ndim == 3 and values.shape[0] == 3:
        return values.transpose(1, 2, 0)
    if values.ndim == 3:
        return values[0]
    return values if values.ndim == 2 else values.reshape(1, -1)


def _thumbnail(image: Tensor, alternative: str) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray((_pixels(image) * 255).round().astype(np.uint8)).save(buffer, format="PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f"<img alt='{alternative}' height='48' src='data:image/png;base64,{data}'>"
