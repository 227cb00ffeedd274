"""The progress and the results of a verification."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.progress import Progress

from steadynet.cli.display.numbers import count_of, percent, seconds
from steadynet.cli.display.tables import table
from steadynet.cli.display.terminal import console
from steadynet.training.notation import written_radius
from steadynet.verification.guarantees import describe_proofs
from steadynet.verification.run import RunVerification
from steadynet.verification.summary import RadiusSummary, VerdictSummary, VerificationSummary
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
        description=f"verifying ε {written_radius(row.eps)}",
        note=verification.counts(),
    )


def show_verification(result: VerificationSummary) -> None:
    """Print verdicts, times and accuracy under attack as a table, then what a proof guarantees and what went wrong."""
    radii = result.radii
    table(
        f"{result.run}: {radii[0].verdicts.properties} properties per radius by {result.verifier}, "
        f"time-out {result.timeout:g} s",
        ["", *(f"ε {written_radius(radius.eps)}" for radius in radii)],
        _verdict_rows(radii),
    )
    if proofs := describe_proofs(result.guarantees):
        console.print(proofs, soft_wrap=True, markup=False)
    for reason, count in result.reasons.items():
        console.print(f"{count} × {reason}", soft_wrap=True, markup=False)


def _verdict_rows(radii: Sequence[RadiusSummary]) -> list[list[str]]:
    """Return the rows of the table: one row per metric, one column per radius."""
    verdicts = [radius.verdicts for radius in radii]
    methods = "+".join(sorted({found.stable_method for found in verdicts if found.stable_method})) or "not measured"
    rows = {
        "proved (UNSAT)": [count_of(found.unsat, found.properties) for found in verdicts],
        "refuted (SAT)": [count_of(found.sat, found.properties) for found in verdicts],
        "  by the image itself": [
            count_of(found.misclassified, found.properties) if found.misclassified else "" for found in verdicts
        ],
        "time-outs": [count_of(found.timeout, found.properties) for found in verdicts],
        "unknown": [count_of(found.unknown, found.properties) if found.unknown else "" for found in verdicts],
        "errors": [count_of(found.error, found.properties) if found.error else "" for found in verdicts],
        f"stable neurons ({methods})": [_stable(found) for found in verdicts],
        "Time": [seconds(found.time) for found in verdicts],
        "Time_U+T": [seconds(found.time_unsat_timeout) for found in verdicts],
        f"PGD-{radii[0].pgd_steps} accuracy": [
            count_of(radius.pgd_kept, radius.verdicts.properties) for radius in radii
        ],
    }
    return [[name, *cells] for name, cells in rows.items() if any(cells)]


def _stable(found: VerdictSummary) -> str:
    """Write the stable share, with the number of properties where it was not measured on all of them."""
    note = (
        ""
        if found.stable_properties in (0, found.properties)
        else f" ({found.stable_properties} of {found.properties} images)"
    )
    return percent(found.stable_share) + note
