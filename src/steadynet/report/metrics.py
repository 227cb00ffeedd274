"""What is measured: how each metric is called, which way is better, and how its numbers are written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from steadynet.experiments.table import DELTA


@dataclass(frozen=True)
class Metric:
    """One metric of a table; ``latex`` is its name there."""

    name: str
    label: str
    latex: str
    higher_is_better: bool = True
    is_delta: bool = False

    @property
    def is_time(self) -> bool:
        """Whether it is in seconds, else in per cent."""
        return self.name.removesuffix(DELTA).endswith("_s")

    def written(self, value: float | None) -> str:
        """A number of it, as tables show it.

        >>> metric("unsat_percent").written(97.25), metric("time_s").written(0.0123)
        ('97.2', '0.012')
        >>> metric("unsat_percent_delta").written(3.0), metric("unsat_percent").written(None)
        ('+3.0', '–')
        """
        if value is None:
            return "–"
        digits = (3 if abs(value) < 1 else 2 if abs(value) < 10 else 1) if self.is_time else 1
        text = f"{value:{'+' if self.is_delta else ''}.{digits}f}"
        return re.sub(r"^[-+](0\.0+)$", r"\1", text)

    def better(self, one: float, other: float) -> bool:
        """Whether one value beats another."""
        return one > other if self.higher_is_better else one < other


_NAMES = {
    "test_acc_percent": ("Test accuracy %", r"Test Acc.\,\%", True),
    "unsat_percent": ("UNSAT %", r"UNSAT\,\%", True),
    "stable_percent": ("Stable %", r"Stable\,\%", True),
    "stable_ibp_percent": ("Stable % (ibp)", r"Stable\,\% (ibp)", True),
    "time_s": ("Time (s)", "Time (s)", False),
    "time_unsat_timeout_s": ("Time_U+T (s)", r"Time$_\mathrm{U+T}$ (s)", False),
}
ORDER = tuple(_NAMES)


def metric(name: str) -> Metric:
    """The metric of a table's row.

    >>> metric("pgd100_percent").label, metric("time_s_delta").higher_is_better
    ('PGD-100 %', False)
    """
    base, is_delta = name.removesuffix(DELTA), name.endswith(DELTA)
    attack = re.fullmatch(r"pgd(\d+)_percent", base)
    if attack:
        label, latex, higher = f"PGD-{attack[1]} %", rf"PGD$_{{{attack[1]}}}$\,\%", True
    else:
        label, latex, higher = _NAMES[base]
    return Metric(name, label, latex, higher, is_delta)


def is_shown(name: str) -> bool:
    """Whether a row is a line of the table; counts stand beside their shares instead.

    >>> is_shown("unsat_percent"), is_shown("n_unsat"), is_shown("pgd50_percent_delta")
    (True, False, True)
    """
    base = name.removesuffix(DELTA)
    return base in _NAMES or bool(re.fullmatch(r"pgd\d+_percent", base))


def sort_key(name: str) -> tuple[int, int]:
    """The position of a metric in a table: the order of the paper, then attacks by their number of steps."""
    base = name.removesuffix(DELTA)
    if base in ORDER:
        return ORDER.index(base), 0
    return len(ORDER), int(re.sub(r"\D", "", base) or 0)


def radius(eps: float | None) -> str:
    """A radius as the paper writes it.

    >>> radius(0.1), radius(2 / 255), radius(None)
    ('0.1', '2/255', '')
    """
    if eps is None:
        return ""
    of_pixels = eps * 255
    if f"{eps:.4g}" != f"{eps:.3g}" and abs(of_pixels - round(of_pixels)) < 1e-6:
        return f"{round(of_pixels)}/255"
    return f"{eps:.4g}"
