"""Write the evidence for an assessor: ``evidence.pdf`` to read, and ``evidence.json`` for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steadynet.errors import UserError
from steadynet.report.evidence import NOT_STATED, write_evidence
from steadynet.report.gather_evidence import gather_evidence
from steadynet.verification.self_test.record import read_self_test


def write_evidence_files(
    folders: Sequence[Path],
    out: Path,
    requirement: str = NOT_STATED,
    eps_reason: str = NOT_STATED,
    self_tests: Sequence[Path] = (),
) -> tuple[Path, Path]:
    """Gather the evidence of runs, and write it as PDF and as JSON.

    Args:
        folders: Run directories, experiments, or folders that hold some.
        out: The folder to write into.
        requirement: The requirement that the properties stand for.
        eps_reason: Why the radii are as they are.
        self_tests: Files that ``steadynet self-test --record`` wrote. A verifier that none of them is about is tested
            now, for some seconds.

    Returns:
        The paths of ``evidence.pdf`` and ``evidence.json``.

    Raises:
        UserError: There are no verdicts, they do not belong to the files that are there now, a file cannot be read or
            written, or matplotlib is not installed.
    """
    try:
        from steadynet.report.evidence_pages import DOCUMENT, evidence_blocks
        from steadynet.report.pdf import lay_out, write_pdf
    except ImportError as error:
        raise UserError("evidence needs matplotlib: pip install 'steadynet[report]'") from error
    evidence = gather_evidence(folders, requirement, eps_reason, [read_self_test(path) for path in self_tests])
    pdf, record = out / "evidence.pdf", out / "evidence.json"
    write_evidence(record, evidence)
    write_pdf(pdf, lay_out(evidence_blocks(evidence), f"{DOCUMENT} · {evidence.tool.date}"), DOCUMENT)
    return pdf, record
