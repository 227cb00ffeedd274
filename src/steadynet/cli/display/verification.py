"""The progress and the results of a verification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.progress import Progress

from steadynet.cli.display.tables import count_of, percent, seconds, table
from steadynet.cli.display.terminal import console
from steadynet.verification.run import RunVerification
from steadynet.verification.verdicts import Row


def follow_verification(progress: Progress, verification: RunVerification) -> Callable[[Row], None]:
    """Add a bar of the decided properties, with the number of each verdict beside it.

    Returns:
        A function to call with each new row, which moves the bar.
    """
    task = progress.add_task("verifying", total=len(verification), note="")
    return lambda row: progress.update(
        task,
        completed=len(verification.rows),
        description=f"verifying ε {row.eps:.4g}",
        note=verification.counts(),
    )


def show_verification(result: dict[str, Any]) -> None:
    """Print verdicts, times and accuracy under attack as a table, and below it what went wrong and how often."""
    radii = result["radii"]
    table(
        f"{result['run']}: {radii[0]['properties']} properties per radius by {result['verifier']}, "
        f"time-out {result['timeout']:g} s",
        ["", *(f"ε {row['eps']:.4g}" for row in radii)],
        _verdict_rows(radii),
    )
    for reason, count in result["reasons"].items():
        console.print(f"{count} × {reason}", soft_wrap=True, markup=False)


def _verdict_rows(radii: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of the table: one row per metric, one column per radius."""
    methods = "+".join(sorted({row["stable_method"] for row in radii if row["stable_method"]})) or "not measured"
    steps = radii[0]["pgd_steps"]
    rows = {
        "proved (UNSAT)": [count_of(row["unsat"], row["properties"]) for row in radii],
        "refuted (SAT)": [count_of(row["sat"], row["properties"]) for row in radii],
        "time-outs": [count_of(row["timeout"], row["properties"]) for row in radii],
        "unknown": [count_of(row["unknown"], row["properties"]) if row["unknown"] else "" for row in radii],
        "errors": [count_of(row["error"], row["properties"]) if row["error"] else "" for row in radii],
        f"stable neurons ({methods})": [_stable(row) for row in radii],
        "Time": [seconds(row["time"]) for row in radii],
        "Time_U+T": [seconds(row["time_unsat_timeout"]) for row in radii],
        f"PGD-{steps} accuracy": [count_of(row["pgd_kept"], row["properties"]) for row in radii],
    }
    return [[name, *cells] for name, cells in rows.items() if any(cells)]


def _stable(row: dict[str, Any]) -> str:
    """Write the stable share, with the number of properties where it was not measured on all of them."""
    note = "" if row["stable_properties"] in (0, row["properties"]) else f" of {row['stable_properties']}"
    return percent(row["stable_share"]) + note
