"""The paper's claims, judged by our tables: holds, does not hold, or not enough data, with the cells it rests on.

One rule for all: a claim is a set of pairs of cells of which one should be better. It holds if the mean advantage is
above zero and at least half of the pairs are no worse. Fewer than ``TASKS`` properties a cell, a method of the claim
that is missing, or a difference of proved properties within chance, are not enough data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from steadynet.experiments.table import DELTA
from steadynet.report.layout import Cell, Table
from steadynet.report.metrics import Metric, metric, radius

TASKS = 50  # properties a cell, as in the paper's smallest experiments
HOLDS, FAILS, OPEN = "holds", "does not hold", "not enough data"
BASELINES = ("trades", "madry", "rs")
GAMMAS = ("gamma=one", "gamma=rank-power", "gamma=rank-size")  # the later, the looser on large layers


@dataclass(frozen=True)
class Pair:
    """Two cells of a metric: the claim says that ``one`` is better than ``other``; a difference is set against 0."""

    place: str
    one: Cell
    other: Cell
    tasks: int  # the properties of the network that was asked fewer


@dataclass(frozen=True)
class Part:
    """One metric of a claim: what is said, its pairs, and what is found."""

    text: str
    metric: Metric
    pairs: list[Pair]
    verdict: str
    why: str
    paper: str  # the same rule on the paper's own numbers


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, of one table."""

    name: str
    text: str
    table: str
    parts: list[Part]

    @property
    def verdict(self) -> str:
        """Holds if every part does; one that does not hold is enough to say so."""
        return _joined([part.verdict for part in self.parts])

    @property
    def paper(self) -> str:
        """What the same rule says of the paper's own numbers."""
        return _joined([part.paper for part in self.parts])


def _joined(verdicts: Sequence[str]) -> str:
    if FAILS in verdicts:
        return FAILS
    return OPEN if OPEN in verdicts or not verdicts else HOLDS


class _Cells:
    """The cells of a table, by model, method, metric and radius."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.found = {
            (model, method, line.metric.name, line.eps): cell
            for line in table.lines
            for (model, method), cell in zip(table.columns, line.cells, strict=True)
            if cell.is_there
        }

    def radii(self, name: str) -> list[float | None]:
        return list(dict.fromkeys(line.eps for line in self.table.lines if line.metric.name == name))

    def pairs(self, name: str, methods: Iterable[tuple[str, str | None]]) -> list[Pair]:
        """Of each model and radius, the cells of two methods each."""
        methods = list(methods)
        result = []
        for model in self.table.models:
            for eps in self.radii(name):
                for one, other in methods:
                    cells = [self.found.get((model, method or "", name, eps)) for method in (one, other)]
                    if cells[0] and (cells[1] or other is None):
                        where = f"{model}, ε {radius(eps)}" if eps else model
                        against = f"{one} against {other}" if other else one
                        tasks = min(self._tasks(model, method, eps) for method in (one, other) if method)
                        result.append(Pair(f"{where}: {against}", cells[0], cells[1] or Cell(0.0, paper=0.0), tasks))
        return result

    def _tasks(self, model: str, method: str, eps: float | None) -> int:
        """How many properties the network was asked about, whatever the metric is a mean over; at no radius, at any."""
        names = ("unsat_percent", f"unsat_percent{DELTA}")
        asked = [
            cell.of or 0
            for (of, by, what, where), cell in self.found.items()
            if (of, by) == (model, method) and what in names and eps in (None, where)
        ]
        return max(asked, default=0)


def judged(text: str, name: str, pairs: list[Pair], missing: Sequence[str] = (), lower: bool = False) -> Part:
    """A part of a claim with what is found; ``lower``: the claim is that the metric gets worse."""
    what = metric(name)
    sign = 1.0 if what.higher_is_better != lower else -1.0
    ours = [
        (sign * (p.one.value - p.other.value), p)
        for p in pairs
        if p.one.value is not None and p.other.value is not None
    ]
    papers = [
        sign * (p.one.paper - p.other.paper) for p in pairs if p.one.paper is not None and p.other.paper is not None
    ]
    gains = [gain for gain, _ in ours]
    tendency = _rule(gains)
    verdict, why = tendency, _in_words(gains, what)
    few = [pair for _, pair in ours if pair.tasks < TASKS]
    if missing or not ours:
        verdict, why = OPEN, f"no numbers for {', '.join(missing) or 'this'} yet" + _so_far(gains, why)
    elif len(ours) < len(pairs):
        verdict, why = OPEN, f"{len(pairs) - len(ours)} of {len(pairs)} comparisons lack a number" + _so_far(gains, why)
    elif few:
        least = min(pair.tasks for pair in few)
        verdict, why = OPEN, f"{least} properties a cell, {TASKS} are needed" + _so_far(gains, why)
    elif name == "unsat_percent" and _is_chance([pair for _, pair in ours]):
        verdict, why = OPEN, f"within chance (95 %) of no difference{_so_far(gains, why)}"
    return Part(text, what, pairs, verdict, why, _rule(papers))


def _rule(gains: Sequence[float]) -> str:
    """The one rule, on how much better each pair is."""
    if not gains:
        return OPEN
    no_worse = sum(gain >= 0 for gain in gains)
    return HOLDS if sum(gains) > 0 and 2 * no_worse >= len(gains) else FAILS


def _in_words(gains: Sequence[float], what: Metric) -> str:
    if not gains:
        return ""
    unit = "s" if what.is_time else "points"
    better = sum(gain > 0 for gain in gains)
    equal = sum(gain == 0 for gain in gains)
    mean = sum(gains) / len(gains)
    size = f"{abs(mean):.2f}" if abs(mean) < 1 else f"{abs(mean):.1f}"
    return (
        f"as claimed in {better} of {len(gains)}{f' (equal in {equal})' if equal else ''}, "
        f"on average {size} {unit} {'as claimed' if mean >= 0 else 'the other way'}"
    )


def _so_far(gains: Sequence[float], words: str) -> str:
    return f"; so far {words}" if gains else ""


def _is_chance(pairs: Sequence[Pair]) -> bool:
    """Whether pooled counts of proved properties differ by less than two standard errors."""
    ones, others = ([getattr(pair, side) for pair in pairs] for side in ("one", "other"))
    if any(cell.count is None or not cell.of for cell in (*ones, *others)):
        return False
    (k1, n1), (k2, n2) = ((sum(c.count or 0 for c in cells), sum(c.of or 0 for c in cells)) for cells in (ones, others))
    pooled = (k1 + k2) / (n1 + n2)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n1 + 1 / n2))
    return abs(k1 / n1 - k2 / n2) <= 1.96 * error


def _rq1(cells: _Cells) -> Claim | None:
    there = {method for _, method in cells.table.columns}
    if "nbc" not in there or not there & set(BASELINES):
        return None
    missing = [method for method in BASELINES if method not in there]
    methods = [("nbc", method) for method in BASELINES if method in there]
    said = {
        "unsat_percent": "more properties are proved than by each baseline",
        "stable_percent": "more neurons are stable",
        "time_unsat_timeout_s": "proofs and time-outs take less time",
    }
    parts = [judged(text, name, cells.pairs(name, methods), missing) for name, text in said.items()]
    text = "NBC alone gives networks that are easier to verify than TRADES, Madry and ReLU Stable"
    return Claim("RQ1", text, cells.table.name, parts)


def _rq2(cells: _Cells) -> Claim | None:
    joined = [method for _, method in cells.table.columns if method.endswith("+nbc")]
    if not any(line.metric.is_delta for line in cells.table.lines) or not joined:
        return None
    missing = [f"{method}+nbc" for method in BASELINES if f"{method}+nbc" not in joined]
    methods: list[tuple[str, str | None]] = [(method, None) for method in dict.fromkeys(joined)]
    said = {
        "unsat_percent_delta": "more properties are proved than by the method alone",
        "stable_percent_delta": "more neurons are stable",
        "time_unsat_timeout_s_delta": "proofs and time-outs take less time",
    }
    parts = [judged(text, name, cells.pairs(name, methods), missing) for name, text in said.items()]
    return Claim("RQ2", "NBC joined with a method makes its networks easier to verify", cells.table.name, parts)


def _rq3(cells: _Cells) -> Claim | None:
    there = dict.fromkeys(method for _, method in cells.table.columns if "@" in method)
    methods = [
        (f"nbc@{other.partition('@')[2]}", other)
        for other in there
        if not other.startswith("nbc@") and f"nbc@{other.partition('@')[2]}" in there
    ]
    if not methods:
        return None
    said = {
        "unsat_percent": "more properties are proved at close accuracy",
        "stable_percent": "more neurons are stable",
        "time_unsat_timeout_s": "proofs and time-outs take less time",
    }
    parts = [judged(text, name, _reached(cells.pairs(name, methods))) for name, text in said.items()]
    return Claim("RQ3", "At close accuracy NBC is easier to verify than the other methods", cells.table.name, parts)


def _reached(pairs: list[Pair]) -> list[Pair]:
    """Without methods that missed a window of accuracy: the paper leaves those out, too."""
    return [pair for pair in pairs if "window" not in pair.one.note + pair.other.note]


def _gamma(cells: _Cells) -> Claim | None:
    there = [name for name in GAMMAS if any(method == name for _, method in cells.table.columns)]
    if not there:
        return None
    missing = [name for name in GAMMAS if name not in there]
    steps = [(later, earlier) for earlier, later in combinations(there, 2)]
    parts = [
        judged("accuracy grows", "test_acc_percent", cells.pairs("test_acc_percent", steps), missing),
        judged("fewer neurons are stable", "stable_percent", cells.pairs("stable_percent", steps), missing, lower=True),
    ]
    return Claim("γ", "A looser γ on large layers gives accuracy and costs stable neurons", cells.table.name, parts)


def _beta(cells: _Cells) -> Claim | None:
    there = sorted(
        {method for _, method in cells.table.columns if method.startswith("beta=")},
        key=lambda method: float(method.removeprefix("beta=")),
    )
    if not there:
        return None
    missing = ["a second β"] if len(there) < 2 else []
    steps = [(later, earlier) for earlier, later in combinations(there, 2)]
    said: dict[str, tuple[str, bool]] = {
        "unsat_percent": ("more properties are proved", False),
        "stable_percent": ("more neurons are stable", False),
        "time_unsat_timeout_s": ("proofs and time-outs take less time", False),
        "test_acc_percent": ("accuracy falls", True),
    }
    parts = [judged(text, name, cells.pairs(name, steps), missing, lower) for name, (text, lower) in said.items()]
    return Claim("β", "A larger β makes networks easier to verify and costs accuracy", cells.table.name, parts)


def _sabr(cells: _Cells) -> Claim | None:
    if not {"sabr", "nbc"} <= {method for _, method in cells.table.columns}:
        return None
    said = {"test_acc_percent": "accuracy is higher", "unsat_percent": "more properties are proved"}
    parts = [judged(text, name, cells.pairs(name, [("nbc", "sabr")])) for name, text in said.items()]
    return Claim("SABR", "NBC is more accurate than SABR and proves more", cells.table.name, parts)


RULES: tuple[Callable[[_Cells], Claim | None], ...] = (_rq1, _rq2, _rq3, _gamma, _beta, _sabr)
NAMES = ("RQ1", "RQ2", "RQ3", "γ", "β", "SABR")


def claims_of(tables: Iterable[Table]) -> list[Claim]:
    """Every claim that a table has something to say on; the others have no data at all."""
    found = [claim for table in tables for claim in (rule(_Cells(table)) for rule in RULES) if claim]
    return sorted(found, key=lambda claim: NAMES.index(claim.name))
