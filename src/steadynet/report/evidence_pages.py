"""What the pages of ``evidence.pdf`` say, section by section."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import groupby

from steadynet.report import evidence_texts as texts
from steadynet.report.evidence import NOT_STATED, Evidence, NetworkEvidence, PropertyEvidence, Sample
from steadynet.report.evidence_radii import interval_in_percent, radius_blocks
from steadynet.report.evidence_topics import (
    ARITHMETIC,
    ITEMS,
    LIMITS,
    RADIUS,
    REPEAT,
    REQUIREMENT,
    RESULTS,
    SAMPLE,
    SECTIONS,
    STANDARDS,
    TOOL,
    Section,
)
from steadynet.report.pdf import CELL, CODE, HASH, HEADING, NOTE, SUBHEADING, TITLE, Block, Table, Text
from steadynet.runs.config import IMPORTED
from steadynet.verification.asked import LABEL_STAYS
from steadynet.verification.properties import Verdict
from steadynet.verification.self_test.record import FamilyRecord, SelfTestRecord
from steadynet.verification.stored_verifier import as_typed

DOCUMENT = "Evidence of robustness verification"


def evidence_blocks(evidence: Evidence) -> list[Block]:
    """Return what ``evidence.pdf`` shows, in order."""
    written = f"steadynet {evidence.tool.steadynet}, {evidence.tool.date}. The same, with every single verdict, is in "
    return [
        Text(DOCUMENT, TITLE),
        Text(f"Written by {written}evidence.json beside this file.", NOTE),
        *_requirement(evidence),
        *_items(evidence),
        *_samples(evidence),
        *_radii(evidence),
        *_results(evidence),
        *_arithmetic(evidence),
        *_self_tests(evidence),
        *_repeat(evidence),
        *_limits(evidence),
        *_topics(),
    ]


def _head(section: Section) -> Text:
    return Text(f"{SECTIONS.index(section) + 1}  {section.heading}", HEADING, with_next=True)


def _requirement(evidence: Evidence) -> Iterator[Block]:
    yield _head(REQUIREMENT)
    given = evidence.requirement
    yield Text(f"Requirement: {given if given != NOT_STATED else 'not stated (state it with --requirement).'}")
    yield Text(texts.TRACE)
    rows = tuple(
        (entry.name, network.name, _region(entry), f"{entry.proved} of {entry.images}",
         str(entry.refuted), str(entry.undecided), interval_in_percent(entry.proved_share))
        for network, entry in _properties(evidence)
    )  # fmt: skip
    header = (
        "property",
        "network",
        "region",
        "proved",
        "refuted",
        "undecided",
        "proved share, 95\N{NO-BREAK SPACE}% interval",
    )
    if rows:
        yield Table(header, rows, (0.10, 0.20, 0.20, 0.12, 0.09, 0.11, 0.18))
        yield Text(texts.PROPERTY)
    for _, entry in _properties(evidence):
        if entry.eps is None:
            yield Text(f"{entry.name}: {entry.statement}")
    for network in evidence.networks:
        for found in network.radii:
            yield Text(f"{found.name} ({network.name}): {found.statement}")
    if evidence.without_verdicts:
        yield Text(f"Given, but without verdicts: {', '.join(evidence.without_verdicts)}.")


def _items(evidence: Evidence) -> Iterator[Block]:
    yield _head(ITEMS)
    for network in evidence.networks:
        yield Text(network.name, SUBHEADING, with_next=True)
        if network.method == IMPORTED:
            origin = f"Network of {network.model}, trained elsewhere."
        else:
            origin = f"Model {network.model}, trained by {network.method} for ε {as_typed(network.trained_for)}."
        yield Text(origin)
        rows = [(file.role, file.path, file.sha256) for file in network.files]
        rows.append(("network (values)", "all weights, by name", network.weights_sha256))
        for sample, names in _distinct_samples(network):
            rows.append(
                ("data (images used)", f"{sample.data}, {len(sample.positions)} images, {names}", sample.sha256)
            )
        yield Table(("what", "file", "SHA-256"), tuple(rows), (0.18, 0.27, 0.55), (CELL, CELL, HASH))
    yield Text("Tool", SUBHEADING, with_next=True)
    yield Table(("what", "value"), tuple(_tool(evidence)), (0.25, 0.75))
    yield Text(texts.HASHES, NOTE)
    yield Text(texts.VALUES, NOTE)
    yield Text(texts.KEYS, NOTE)


def _tool(evidence: Evidence) -> Iterator[tuple[str, str]]:
    tool = evidence.tool
    yield "version", f"steadynet {tool.steadynet}, Python {tool.python}, PyTorch {tool.torch}"
    yield "machine", f"{tool.system}, {tool.hardware}"
    if tool.commit:
        yield "commit", tool.commit
    yield "SHA-256 of its source", evidence.tool_sha256
    yield "soundness version", f"{evidence.soundness_version} (raised with every change that could alter a verdict)"


def _samples(evidence: Evidence) -> Iterator[Block]:
    yield _head(SAMPLE)
    rows = [
        (names, sample.data, f"{len(sample.positions)} of {sample.test_images}", _rule(sample), _per_class(sample))
        for network in evidence.networks
        for sample, names in _distinct_samples(network)
    ]
    header = ("property", "test set", "images", "how they were chosen", "images of each class")
    yield Table(header, tuple(rows), (0.14, 0.22, 0.13, 0.28, 0.23))
    yield Text(texts.INTERVAL)
    yield Text(texts.ASSUMPTION)
    for text, held_out in ((texts.HELD_OUT, True), (texts.MAY_HAVE_SEEN, False)):
        names = [network.name for network in evidence.networks if network.held_out is held_out]
        if names:
            yield Text(f"{', '.join(names)}: {text}")


def _radii(evidence: Evidence) -> Iterator[Block]:
    yield _head(RADIUS)
    radii = sorted({entry.eps for _, entry in _properties(evidence) if entry.eps is not None})
    if radii:
        yield Text(f"ε: {', '.join(map(as_typed, radii))}, in units of the pixel range [0, 1]; maximum norm.")
    for _, entry in _properties(evidence):
        if entry.eps is None:
            yield Text(f"{entry.name}: {entry.region}; {entry.claim}.")
    for network in evidence.networks:
        for found in network.radii:
            yield Text(f"{found.name}: radii up to {as_typed(found.most)}, by halving to {as_typed(found.tolerance)}.")
    reason = evidence.eps_reason
    yield Text(f"Why: {reason if reason != NOT_STATED else 'not stated (state it with --eps-reason).'}")


def _results(evidence: Evidence) -> Iterator[Block]:
    yield _head(RESULTS)
    for network in evidence.networks:
        yield Text(network.name, SUBHEADING, with_next=True)
        rows = tuple(
            (entry.name, _region(entry), _count(entry.proved, entry), _refuted(entry), _undecided(entry),
             ", ".join(f"{as_typed(limit)} s" for limit in entry.time_limits))
            for entry in network.properties
        )  # fmt: skip
        header = ("property", "region", "proved", "refuted", "undecided", "time limit per image")
        if rows:
            yield Table(header, rows, (0.10, 0.18, 0.16, 0.22, 0.20, 0.14))
        for how, entries in groupby(network.properties, key=lambda entry: (entry.verifier, entry.settings)):
            names = ", ".join(entry.name for entry in entries)
            yield Text(f"{names}: decided by {how[0]} with {how[1] or 'no settings'}.", NOTE)
        if network.other_rows:
            yield Text(
                f"verdicts.csv has {network.other_rows} more rows, of other verifiers, settings or data, or replaced "
                "by later ones; they are not part of this evidence.",
                NOTE,
            )
        for entry in network.properties:
            yield Text(f"{entry.name}: positions of the images in the test set, from 0. {_positions(entry)}", NOTE)
        for found in network.radii:
            yield from radius_blocks(found)
    yield Text(texts.OUTCOMES)


def _arithmetic(evidence: Evidence) -> Iterator[Block]:
    yield _head(ARITHMETIC)
    rows = tuple(
        (entry.name, str(found.count), found.verdict, found.arithmetic or "the network as it runs", found.meaning)
        for _, entry in _properties(evidence)
        for found in entry.guarantees
    )
    if rows:
        header = ("property", "verdicts", "verdict", "arithmetic", "meaning")
        yield Table(header, rows, (0.11, 0.10, 0.10, 0.19, 0.50))
    yield Text(texts.GUARANTEES)
    for _, entry in _properties(evidence):
        yield Text(_proof_files(entry))


def _proof_files(entry: PropertyEvidence) -> str:
    """How many proofs an independent program has checked."""
    if not entry.checked_proofs and not entry.other_proofs:
        return f"{entry.name}: no proof files (steadynet verify --proofs writes them)."
    line = f"{entry.name}: steadycheck, an independent program, has checked and accepted the proof files of "
    line += f"{entry.checked_proofs} of {entry.proved} proved images."
    return line + (f" {entry.other_proofs} more do not count." if entry.other_proofs else "")


def _self_tests(evidence: Evidence) -> Iterator[Block]:
    yield _head(TOOL)
    yield Text(texts.SELF_TEST)
    for test in evidence.self_tests:
        yield Text(f"{test.verifier}, steadynet {test.steadynet}, {_judged(test)}", SUBHEADING, with_next=True)
        rows = tuple(map(_family, (*test.families, test.total())))
        header = ("family", "tried", "right", "undecided", "not supported", "wrong")
        yield Table(header, rows, (0.25, 0.15, 0.15, 0.15, 0.15, 0.15))
        for wrong in test.wrong:
            yield Text(f"WRONG: {wrong}")
        yield Text(test.command, CODE)


def _repeat(evidence: Evidence) -> Iterator[Block]:
    yield _head(REPEAT)
    for network in evidence.networks:
        yield Text(network.name, SUBHEADING, with_next=True)
        yield Text(shlex.join(["sha256sum", *(file.path for file in network.files)]), CODE)
        for command in network.commands:
            yield Text(command, CODE)
    yield Text(texts.REPEATED)


def _limits(_: Evidence) -> Iterator[Block]:
    yield _head(LIMITS)
    yield Text(texts.SCOPE)


def _topics() -> Iterator[Block]:
    yield Text("Topics of standards and guidance", HEADING, with_next=True)
    yield Text(f"{texts.NO_CONFORMANCE}: {'; '.join(STANDARDS)}.")
    rows = tuple(
        (f"{number} {section.heading}", section.iso_24029, section.iso_8800, section.easa)
        for number, section in enumerate(SECTIONS, 1)
    )
    yield Table(("section", "ISO/IEC 24029-2", "ISO/PAS 8800", "EASA concept paper"), rows, (0.25, 0.25, 0.25, 0.25))


def _properties(evidence: Evidence) -> Iterator[tuple[NetworkEvidence, PropertyEvidence]]:
    for network in evidence.networks:
        for entry in network.properties:
            yield network, entry


def _distinct_samples(network: NetworkEvidence) -> list[tuple[Sample, str]]:
    """The samples of a network, each once, with the names of the properties that were decided for it."""
    found: dict[str, tuple[Sample, list[str]]] = {}
    used = [(entry.sample, entry.name) for entry in network.properties]
    used += [(entry.sample, entry.name) for entry in network.radii]
    for sample, name in used:
        found.setdefault(sample.sha256, (sample, []))[1].append(name)
    return [(sample, ", ".join(names)) for sample, names in found.values()]


def _rule(sample: Sample) -> str:
    if sample.first_of_each_class is None:
        return "not known"
    fewer = any(count < sample.first_of_each_class for count in sample.per_class.values())
    also = "; all of a class that has fewer" if fewer else ""
    return f"the first {sample.first_of_each_class} of each class, in the order of the file{also}"


def _per_class(sample: Sample) -> str:
    """How many images of each class there are, with a range of labels that have the same number."""
    if len(set(sample.per_class.values())) == 1:
        return f"{next(iter(sample.per_class.values()))} of each of {len(sample.per_class)} classes"
    return ", ".join(f"{label}: {count}" for label, count in sample.per_class.items())


def _region(entry: PropertyEvidence) -> str:
    """The region in a cell: the radius, or words and the claim."""
    if entry.eps is not None:
        return f"ε {as_typed(entry.eps)}"
    return entry.region if entry.claim == LABEL_STAYS else f"{entry.region}; {entry.claim}"


def _count(number: int, entry: PropertyEvidence) -> str:
    return f"{number} of {entry.images} ({100 * number / entry.images:.1f} %)"


def _refuted(entry: PropertyEvidence) -> str:
    wrong = f"; {entry.misclassified} of them misclassified without any change" if entry.misclassified else ""
    return _count(entry.refuted, entry) + wrong


def _undecided(entry: PropertyEvidence) -> str:
    because = ", ".join(f"{count} {name}" for name, count in entry.undecided_because.items() if count)
    return _count(entry.undecided, entry) + (f": {because}" if because else "")


def _positions(entry: PropertyEvidence) -> str:
    words = {Verdict.UNSAT.value: "Proved", Verdict.SAT.value: "Refuted"}
    ordered = sorted(entry.verdicts, key=lambda found: words.get(found.verdict, "Undecided"))
    parts = [
        f"{word}: {', '.join(str(found.image) for found in group)}."
        for word, group in groupby(ordered, key=lambda found: words.get(found.verdict, "Undecided"))
    ]
    return " ".join(parts)


def _judged(test: SelfTestRecord) -> str:
    total = test.total()
    verdict = "none of them wrong" if not total.wrong else f"{total.wrong} of them WRONG"
    return f"{total.right + total.wrong} properties decided, {verdict}"


def _family(entry: FamilyRecord) -> tuple[str, ...]:
    return (entry.family, *map(str, (entry.tried, entry.right, entry.undecided, entry.not_supported, entry.wrong)))
