"""The paper's claims, and which table entries each of them compares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

from steadynet.experiments.table import DELTA
from steadynet.report.claims import Claim, Comparison, judge
from steadynet.report.layout import Entry, Table
from steadynet.report.metrics import radius

BASELINES = ("trades", "madry", "rs")
GAMMAS = ("gamma=one", "gamma=rank-power", "gamma=rank-size")  # each is looser on large layers than the one before
EASIER = {
    "unsat_percent": "more properties are proved",
    "stable_percent": "more neurons are stable",
    "time_unsat_timeout_s": "proofs and time-outs take less time",
}


class _Entries:
    """The entries of a table, found by model, method, metric and radius."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.methods = table.methods
        self._found = {
            (model, method, line.metric.name, line.eps): entry
            for line in table.lines
            for (model, method), entry in table.entries(line).items()
            if entry.is_there
        }

    def compare(self, name: str, methods: Iterable[tuple[str, str | None]]) -> list[Comparison]:
        """Compare pairs of methods in one metric, for every model and radius; without a second method, with 0."""
        methods = list(methods)
        radii = dict.fromkeys(line.eps for line in self.table.lines if line.metric.name == name)
        result = []
        for model in self.table.models:
            for eps in radii:
                for one, other in methods:
                    first = self._found.get((model, one, name, eps))
                    second = self._found.get((model, other, name, eps)) if other else Entry(0.0, paper=0.0)
                    if first and second:
                        where = f"{model}, ε {radius(eps)}" if eps else model
                        label = f"{where}: {one} and {other}" if other else f"{where}: {one}"
                        fewest = min(self._properties(model, method, eps) for method in (one, other) if method)
                        result.append(Comparison(label, first, second, fewest))
        return result

    def _properties(self, model: str, method: str, eps: float | None) -> int:
        """How many properties a network was verified on, at this radius or, for None, at any."""
        names = ("unsat_percent", f"unsat_percent{DELTA}")
        counts = [
            entry.total or 0
            for (its_model, its_method, name, its_eps), entry in self._found.items()
            if (its_model, its_method) == (model, method) and name in names and eps in (None, its_eps)
        ]
        return max(counts, default=0)


def _rq1(entries: _Entries) -> Claim | None:
    there = entries.methods
    if "nbc" not in there or not set(there) & set(BASELINES):
        return None
    missing = [method for method in BASELINES if method not in there]
    methods = [("nbc", method) for method in BASELINES if method in there]
    parts = [judge(text, name, entries.compare(name, methods), missing) for name, text in EASIER.items()]
    text = "NBC alone gives networks that are easier to verify than those of TRADES, Madry and RS (ReLU stability)"
    return Claim("RQ1", text, entries.table.name, parts)


def _rq2(entries: _Entries) -> Claim | None:
    joined = [method for method in entries.methods if method.endswith("+nbc")]
    if not any(line.metric.is_delta for line in entries.table.lines) or not joined:
        return None
    missing = [f"{method}+nbc" for method in BASELINES if f"{method}+nbc" not in joined]
    methods = [(method, None) for method in joined]
    names = {f"{name}{DELTA}": text for name, text in EASIER.items()}
    parts = [judge(text, name, entries.compare(name, methods), missing) for name, text in names.items()]
    return Claim("RQ2", "Adding NBC to a method makes its networks easier to verify", entries.table.name, parts)


def _rq3(entries: _Entries) -> Claim | None:
    there = [method for method in entries.methods if "@" in method]
    methods = [
        (f"nbc@{other.partition('@')[2]}", other)
        for other in there
        if not other.startswith("nbc@") and f"nbc@{other.partition('@')[2]}" in there
    ]
    if not methods:
        return None
    parts = [judge(text, name, _reached(entries.compare(name, methods))) for name, text in EASIER.items()]
    text = "At similar test accuracy, NBC gives networks that are easier to verify than those of the other methods"
    return Claim("RQ3", text, entries.table.name, parts)


def _reached(pairs: list[Comparison]) -> list[Comparison]:
    """Leave out methods that did not reach the accuracy window, as the paper does."""
    return [pair for pair in pairs if not (pair.one.missed_window or pair.other.missed_window)]


def _gamma(entries: _Entries) -> Claim | None:
    there = [name for name in GAMMAS if name in entries.methods]
    if not there:
        return None
    missing = [name for name in GAMMAS if name not in there]
    steps = [(later, earlier) for earlier, later in combinations(there, 2)]
    accuracy, stable = (entries.compare(name, steps) for name in ("test_acc_percent", "stable_percent"))
    parts = [
        judge("accuracy rises", "test_acc_percent", accuracy, missing),
        judge("fewer neurons are stable", "stable_percent", stable, missing, expect_worse=True),
    ]
    text = "A γ that is looser on large layers raises accuracy and lowers the share of stable neurons"
    return Claim("γ", text, entries.table.name, parts)


def _beta(entries: _Entries) -> Claim | None:
    there = sorted(
        (method for method in entries.methods if method.startswith("beta=")),
        key=lambda method: float(method.removeprefix("beta=")),
    )
    if not there:
        return None
    missing = ["a second β"] if len(there) < 2 else []
    steps = [(later, earlier) for earlier, later in combinations(there, 2)]
    parts = [judge(text, name, entries.compare(name, steps), missing) for name, text in EASIER.items()]
    accuracy = entries.compare("test_acc_percent", steps)
    parts.append(judge("accuracy falls", "test_acc_percent", accuracy, missing, expect_worse=True))
    return Claim("β", "A larger β makes networks easier to verify and lowers accuracy", entries.table.name, parts)


def _sabr(entries: _Entries) -> Claim | None:
    if not {"sabr", "nbc"} <= set(entries.methods):
        return None
    said = {"test_acc_percent": "accuracy is higher", "unsat_percent": "more properties are proved"}
    parts = [judge(text, name, entries.compare(name, [("nbc", "sabr")])) for name, text in said.items()]
    text = "NBC gives higher accuracy than SABR, and more properties are proved"
    return Claim("SABR", text, entries.table.name, parts)


RULES: dict[str, Callable[[_Entries], Claim | None]] = {
    "RQ1": _rq1,
    "RQ2": _rq2,
    "RQ3": _rq3,
    "γ": _gamma,
    "β": _beta,
    "SABR": _sabr,
}
CLAIMS = tuple(RULES)


def claims_of(tables: Iterable[Table]) -> list[Claim]:
    """Check every claim in every table that has data on it, in the order of ``CLAIMS``."""
    found = [claim for table in tables for claim in (rule(_Entries(table)) for rule in RULES.values()) if claim]
    return sorted(found, key=lambda claim: CLAIMS.index(claim.name))
