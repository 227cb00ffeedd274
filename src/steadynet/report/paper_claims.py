"""The paper's claims, and which table entries each of them compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import combinations

from steadynet.experiments.table import DELTA
from steadynet.experiments.variants import Value
from steadynet.report.claims import Claim, Comparison, judge
from steadynet.report.layout import Entry, Table
from steadynet.report.metrics import radius

BASELINES = ("trades", "madry", "rs")
GAMMAS = ("one", "rank-power", "rank-size")  # each is looser on large layers than the one before
EASIER = {
    "unsat_percent": "more properties are proved",
    "stable_percent": "more neurons are stable",
    "time_unsat_timeout_s": "proofs and time-outs take less time",
}


class _Entries:
    """The entries of a table, found by model, label, metric and radius."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._found = {
            (model, label, line.metric.name, line.eps): entry
            for line in table.lines
            for (model, label), entry in table.entries(line).items()
            if entry.is_there
        }

    def labels_by_method(self) -> dict[str, str]:
        """The labels of the methods that the table has in one variant, without an accuracy window."""
        variants = self.table.variants.values()
        counts = Counter(variant.method for variant in variants)
        return {
            variant.method: variant.label
            for variant in variants
            if counts[variant.method] == 1 and variant.window is None
        }

    def labels_by_setting(self, name: str) -> dict[Value, str]:
        """The labels of the variants of NBC by their value of a setting, if there are several."""
        found = {
            variant.settings[name]: variant.label
            for variant in self.table.variants.values()
            if variant.method == "nbc" and name in variant.settings
        }
        return found if len(found) > 1 else {}

    def compare(self, name: str, labels: Iterable[tuple[str, str | None]]) -> list[Comparison]:
        """Compare pairs of variants in one metric, for every model and radius; without a second variant, with 0."""
        labels = list(labels)
        radii = dict.fromkeys(line.eps for line in self.table.lines if line.metric.name == name)
        result = []
        for model in self.table.models:
            for eps in radii:
                for one, other in labels:
                    first = self._found.get((model, one, name, eps))
                    second = self._found.get((model, other, name, eps)) if other else Entry(0.0, paper=0.0)
                    if first and second:
                        where = f"{model}, ε {radius(eps)}" if eps else model
                        text = f"{where}: {one} and {other}" if other else f"{where}: {one}"
                        fewest = min(self._properties(model, label, eps) for label in (one, other) if label)
                        result.append(Comparison(text, first, second, fewest))
        return result

    def _properties(self, model: str, label: str, eps: float | None) -> int:
        """How many properties a network was verified on, at this radius or, for None, at any."""
        names = ("unsat_percent", f"unsat_percent{DELTA}")
        counts = [
            entry.total or 0
            for (its_model, its_label, name, its_eps), entry in self._found.items()
            if (its_model, its_label) == (model, label) and name in names and eps in (None, its_eps)
        ]
        return max(counts, default=0)


def _rq1(entries: _Entries) -> Claim | None:
    there = entries.labels_by_method()
    if "nbc" not in there or not set(there) & set(BASELINES):
        return None
    missing = [method for method in BASELINES if method not in there]
    pairs = [(there["nbc"], there[method]) for method in BASELINES if method in there]
    parts = [judge(text, name, entries.compare(name, pairs), missing) for name, text in EASIER.items()]
    text = "NBC alone gives networks that are easier to verify than those of TRADES, Madry and RS (ReLU stability)"
    return Claim("RQ1", text, entries.table.name, parts)


def _rq2(entries: _Entries) -> Claim | None:
    joined = {method: label for method, label in entries.labels_by_method().items() if method.endswith("+nbc")}
    if not any(line.metric.is_delta for line in entries.table.lines) or not joined:
        return None
    missing = [f"{method}+nbc" for method in BASELINES if f"{method}+nbc" not in joined]
    pairs = [(label, None) for label in joined.values()]
    names = {f"{name}{DELTA}": text for name, text in EASIER.items()}
    parts = [judge(text, name, entries.compare(name, pairs), missing) for name, text in names.items()]
    return Claim("RQ2", "Adding NBC to a method makes its networks easier to verify", entries.table.name, parts)


def _rq3(entries: _Entries) -> Claim | None:
    tuned = [variant for variant in entries.table.variants.values() if variant.window]
    nbc = {variant.window: variant.label for variant in tuned if variant.method == "nbc"}
    pairs = [
        (nbc[variant.window], variant.label) for variant in tuned if variant.method != "nbc" and variant.window in nbc
    ]
    if not pairs:
        return None
    parts = [judge(text, name, _reached(entries.compare(name, pairs))) for name, text in EASIER.items()]
    text = "At similar test accuracy, NBC gives networks that are easier to verify than those of the other methods"
    return Claim("RQ3", text, entries.table.name, parts)


def _reached(pairs: list[Comparison]) -> list[Comparison]:
    """Leave out methods that did not reach the accuracy window, as the paper does."""
    return [pair for pair in pairs if not (pair.one.missed_window or pair.other.missed_window)]


def _gamma(entries: _Entries) -> Claim | None:
    labels = entries.labels_by_setting("gamma")
    if not labels:
        return None
    missing = [f"gamma={gamma}" for gamma in GAMMAS if gamma not in labels]
    there = [labels[gamma] for gamma in GAMMAS if gamma in labels]
    steps = [(later, earlier) for earlier, later in combinations(there, 2)]
    accuracy, stable = (entries.compare(name, steps) for name in ("test_acc_percent", "stable_percent"))
    parts = [
        judge("accuracy rises", "test_acc_percent", accuracy, missing),
        judge("fewer neurons are stable", "stable_percent", stable, missing, expect_worse=True),
    ]
    text = "A γ that is looser on large layers raises accuracy and lowers the share of stable neurons"
    return Claim("γ", text, entries.table.name, parts)


def _beta(entries: _Entries) -> Claim | None:
    labels = {
        float(beta): label for beta, label in entries.labels_by_setting("beta").items() if isinstance(beta, int | float)
    }
    if not labels:
        return None
    steps = [(labels[larger], labels[smaller]) for smaller, larger in combinations(sorted(labels), 2)]
    parts = [judge(text, name, entries.compare(name, steps)) for name, text in EASIER.items()]
    accuracy = entries.compare("test_acc_percent", steps)
    parts.append(judge("accuracy falls", "test_acc_percent", accuracy, expect_worse=True))
    return Claim("β", "A larger β makes networks easier to verify and lowers accuracy", entries.table.name, parts)


def _sabr(entries: _Entries) -> Claim | None:
    there = entries.labels_by_method()
    if not {"sabr", "nbc"} <= set(there):
        return None
    said = {"test_acc_percent": "accuracy is higher", "unsat_percent": "more properties are proved"}
    parts = [judge(text, name, entries.compare(name, [(there["nbc"], there["sabr"])])) for name, text in said.items()]
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
