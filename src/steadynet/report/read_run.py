"""Read one run directory, and describe how its verdicts were found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from steadynet.experiments.variants import Variant
from steadynet.report.records import Run
from steadynet.runs.directory import RunDirectory
from steadynet.verification.guarantees import describe_guarantee
from steadynet.verification.properties import Verdict
from steadynet.verification.verdicts import Row, read_rows


def read_run(folder: RunDirectory, name: str, dataset: str, model: str, variant: Variant, seed: int) -> Run:
    """Read the metrics and the verdicts of a run, which has these names in the report."""
    return Run(folder, name, dataset, model, variant, seed, folder.read_metrics(), _of_one_verifier(read_rows(folder)))


def _of_one_verifier(rows: list[Row]) -> list[Row]:
    """Keep the rows of the verifier, with its settings, that decided most.

    A later row replaces an earlier one of the same image and radius, even if their keys differ. The earlier row then
    belongs to a network, a label or a version of the verifier that has been replaced.
    """
    counts = Counter((row.data, row.verifier, row.settings) for row in rows)
    chosen = max(counts, key=lambda key: counts[key], default=None)
    found = {(row.eps, row.index): row for row in rows if (row.data, row.verifier, row.settings) == chosen}
    return sorted(found.values(), key=lambda row: row.eps)


def training_facts(runs: Iterable[Run]) -> dict[str, str]:
    """What a fair comparison of methods has to name: their L1 terms, and the searches of their inner attacks."""
    weights: dict[str, set[str]] = {}
    searches: dict[str, set[str]] = {}
    for run in runs:
        config = run.folder.read_config()
        weights.setdefault(run.label, set()).add(f"{config.l1_weight:g}" if config.l1_weight else "none")
        for part, search in config.searches.items():
            searches.setdefault(part, set()).add(search)
    facts = {"inner attacks": _by_value(searches)}
    if any(values != {"none"} for values in weights.values()):
        facts["L1 term"] = _by_value(weights)
    return {key: value for key, value in facts.items() if value}


def _by_value(found: dict[str, set[str]]) -> str:
    """Write values with the names that have them.

    >>> _by_value({"nbc": {"fast"}, "madry": {"fast"}, "rs": {"paper"}})
    'fast: nbc, madry; paper: rs'
    """
    names: dict[str, list[str]] = {}
    for name, values in found.items():
        names.setdefault(" and ".join(sorted(values)), []).append(name)
    return "; ".join(f"{value}: {', '.join(owners)}" for value, owners in names.items())


def verification_facts(runs: Iterable[Run]) -> dict[str, str]:
    """The verifiers, their time-outs, what a proof guarantees, and how stable neurons were counted, for a report."""
    rows = [row for run in runs for row in run.verdicts]
    guarantees = Counter(describe_guarantee(row) for row in rows if row.verdict is Verdict.UNSAT)
    facts = {
        "verifier": ", ".join(sorted({row.verifier for row in rows})),
        "time-out": ", ".join(f"{limit:g} s" for limit in sorted({row.timeout for row in rows})),
        "meaning of proved": "; ".join(text for text, _ in guarantees.most_common()),
        "stable neurons by": ", ".join(sorted({row.stable_method for row in rows if row.stable_method})),
    }
    return {key: value for key, value in facts.items() if value}
