"""Parts of the evidence that properties, regions and radii share: names, samples, counts of verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from steadynet import data
from steadynet.data import Images
from steadynet.report.evidence import DecidedProperty, GuaranteeEvidence, PropertyEvidence, Sample
from steadynet.report.hashes import file_hash, images_hash
from steadynet.report.intervals import clopper_pearson
from steadynet.runs.directory import RunDirectory
from steadynet.verification.asked import Asked
from steadynet.verification.guarantees import count_guarantees, describe_guarantee
from steadynet.verification.proofs.of_run import StoredProof
from steadynet.verification.properties import DecidedBy, Verdict
from steadynet.verification.region_table import RegionRow
from steadynet.verification.stored_verifier import as_typed
from steadynet.verification.summary import VerdictCounts
from steadynet.verification.verdicts import Row
from steadynet.verification.verifiers import Verifier

IN_BOX = (
    "Every input x' with |x'_i - x_i| <= {eps} and 0 <= x'_i <= 1 for each pixel i gets the label y, for an image x "
    "with the label y."
)
IN_REGION = "For an image x with the label y, and every input of its region ({region}): {claim}."


class Names:
    """The names of properties and radii in a document, and the verifiers that it speaks of."""

    def __init__(self) -> None:
        self.properties, self.radii = 0, 0
        self.verifiers: dict[tuple[str, str], Verifier] = {}

    def property(self) -> str:
        """Return the name of the next property."""
        self.properties += 1
        return f"P{self.properties}"

    def radius(self) -> str:
        """Return the name of the next table of radii."""
        self.radii += 1
        return f"R{self.radii}"

    def remember(self, verifier: Verifier) -> Verifier:
        """Note a verifier, which has to be tested, and return it."""
        return self.verifiers.setdefault((verifier.name, verifier.settings_line()), verifier)


def sample_of(source: str, test: Images, positions: Sequence[int], classes: int) -> Sample:
    """Describe the images at some positions of a test set, in rising order."""
    counts = Counter(int(label) for label in test.labels[torch.tensor(positions)])
    most = max(counts.values())
    first = test.first_of_each_class(most, classes, at_most=True)
    return Sample(
        data=source.removeprefix(data.ALL_TESTS),
        test_images=len(test),
        positions=tuple(positions),
        per_class={str(label): counts[label] for label in sorted(counts)},
        first_of_each_class=most if sorted(first.tolist()) == list(positions) else None,
        sha256=images_hash(test, torch.tensor(positions)),
    )


def property_evidence(
    name: str,
    folder: RunDirectory,
    eps: float | None,
    asked: Asked,
    rows: Sequence[Row | RegionRow],
    sample: Sample,
    proofs: Mapping[int, StoredProof] | None = None,
) -> PropertyEvidence:
    """Count the verdicts on a property. ``eps`` is None if it is about another region, or another claim.

    ``proofs`` are the proof files that there are, by image.
    """
    proofs = proofs or {}
    counts = VerdictCounts.of(row.verdict for row in rows)
    because = {"timeout": counts.timeout, "unknown": counts.unknown, "error": counts.error}
    statement = IN_REGION.format(region=asked.region_in_words(), claim=asked.claim_in_words())
    return PropertyEvidence(
        name=name,
        eps=eps,
        region=asked.region_in_words(),
        claim=asked.claim_in_words(),
        statement=statement if eps is None else IN_BOX.format(eps=as_typed(eps)),
        sample=sample,
        proved=counts.unsat,
        refuted=counts.sat,
        misclassified=sum(row.verdict is Verdict.SAT and row.decided_by == DecidedBy.MISCLASSIFIED for row in rows),
        undecided=sum(because.values()),
        undecided_because=because,
        time_limits=tuple(sorted({row.timeout for row in rows})),
        proved_share=clopper_pearson(counts.unsat, len(rows)),
        guarantees=tuple(
            GuaranteeEvidence(
                entry.verdict.value,
                str(entry.arithmetic or ""),
                str(entry.guarantee or ""),
                describe_guarantee(entry),
                entry.count,
            )
            for entry in count_guarantees(rows)
        ),
        verdicts=tuple(_decided(folder, row, proofs.get(row.index)) for row in rows),
        verifier=rows[-1].verifier,
        settings=rows[-1].settings,
        checked_proofs=sum(proof.is_checked for proof in proofs.values()),
        other_proofs=sum(not proof.is_checked for proof in proofs.values()),
    )


def _decided(folder: RunDirectory, row: Row | RegionRow, proof: StoredProof | None) -> DecidedProperty:
    return DecidedProperty(
        image=row.index,
        label=row.label,
        verdict=row.verdict.value,
        seconds=row.seconds,
        time_limit=row.timeout,
        decided_by=row.decided_by,
        reason=row.reason,
        arithmetic=str(row.arithmetic or ""),
        guarantee=str(row.guarantee or ""),
        counterexample=row.counterexample,
        counterexample_sha256=file_hash(folder.path / row.counterexample) if row.counterexample else "",
        key=row.key,
        proof="" if proof is None else proof.described(),
        proof_sha256="" if proof is None else proof.sha256,
    )
