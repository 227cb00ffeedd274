"""The short forms in which users write phases (``rs:200 rs+nbc:200``) and radii (``8/255``)."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from steadynet.errors import UserError


class Phase(NamedTuple):
    """A part of a training: some epochs of one method."""

    method: str
    epochs: int


def parse_phases(text: str) -> list[Phase]:
    """Parse phases, written as ``METHOD:EPOCHS`` with spaces between them.

    Raises:
        UserError: The text is empty, or a phase has another form.

    >>> parse_phases("rs:200 rs+nbc:200")
    [Phase(method='rs', epochs=200), Phase(method='rs+nbc', epochs=200)]
    """
    phases = []
    for part in text.split():
        method, colon, epochs = part.rpartition(":")
        if not colon or not epochs.isdigit() or int(epochs) < 1:
            raise UserError(f"phase '{part}' is not METHOD:EPOCHS, as in 'rs:200 rs+nbc:200'")
        phases.append(Phase(method, int(epochs)))
    if not phases:
        raise UserError("phases is empty: write 'rs:200 rs+nbc:200', or leave it out")
    return phases


def parse_radius(text: str | float) -> float:
    """Parse a radius, written as a number or a fraction.

    Raises:
        UserError: The text is not a number, or the radius does not lie between 0 (excluded) and 1.

    >>> parse_radius("8/255") == 8 / 255, parse_radius(0.3)
    (True, 0.3)
    """
    try:
        value = float(Fraction(text)) if isinstance(text, str) else float(text)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise UserError(f"eps = {text}: a radius is a number such as 0.3, or a fraction such as 8/255") from error
    if not value > 0:
        raise UserError(f"eps = {text} must be larger than 0")
    if value > 1:
        raise UserError(f"eps = {text} is too large: pixel values lie in [0, 1], so write 8/255 for 8 grey levels")
    return value


def written_radius(eps: float) -> str:
    """Write a radius as a user does.

    >>> [written_radius(eps) for eps in (0.1, 2 / 255, 0.2, 0.125)]
    ['0.1', '2/255', '0.2', '0.125']
    """
    levels = 255 * eps
    is_fraction = f"{eps:.4g}" != f"{eps:.3g}" and abs(levels - round(levels)) < 1e-6
    return f"{round(levels)}/255" if is_fraction else f"{eps:.4g}"
