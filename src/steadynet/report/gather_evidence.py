"""Gather the evidence of runs, and check that the stored verdicts belong to the files that are there now."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

import steadynet
from steadynet import data
from steadynet.data import Images
from steadynet.errors import UserError
from steadynet.experiments.provenance import provenance
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.report.collect import collect
from steadynet.report.data_sets import load_here
from steadynet.report.evidence import (
    NOT_STATED,
    DecidedProperty,
    Evidence,
    GuaranteeEvidence,
    HashedFile,
    NetworkEvidence,
    PropertyEvidence,
    Sample,
)
from steadynet.report.hashes import file_hash, images_hash, source_hash, weights_hash
from steadynet.report.intervals import clopper_pearson
from steadynet.report.records import Run
from steadynet.runs.directory import RunDirectory
from steadynet.runs.trained import TrainedNetwork, load_trained
from steadynet.verification.guarantees import count_guarantees, describe_guarantee
from steadynet.verification.properties import DecidedBy, Properties, Verdict, is_counterexample
from steadynet.verification.self_test.record import SelfTestRecord, short_self_test
from steadynet.verification.stored_verifier import as_typed, settings_as_flags, stored_verifier
from steadynet.verification.summary import VerdictCounts
from steadynet.verification.verdict_key import SOUNDNESS_VERSION, property_keys
from steadynet.verification.verdicts import Row, load_counterexample, read_rows
from steadynet.verification.verifiers import Verifier

STATEMENT = (
    "Every input x' with |x'_i - x_i| <= {eps} and 0 <= x'_i <= 1 for each pixel i gets the label y, for an image x "
    "with the label y."
)


def gather_evidence(
    folders: Sequence[Path],
    requirement: str = NOT_STATED,
    eps_reason: str = NOT_STATED,
    self_tests: Sequence[SelfTestRecord] = (),
) -> Evidence:
    """Gather the evidence of runs and experiments.

    Every verdict is checked: its key, a hash of the network, the image, the radius and the verifier, is computed again
    from the files that are there now, and each counterexample is run through the network again.

    Args:
        folders: Run directories, experiments, or folders that hold some.
        requirement: The requirement that the properties stand for.
        eps_reason: Why the radii are as they are.
        self_tests: Results of self-tests. A verifier that none of them is about is tested now, for some seconds.

    Returns:
        The evidence.

    Raises:
        UserError: There are no verdicts; a verdict does not belong to the network, the images and the verifier that are
            there now; a counterexample does not replay; or a self-test is about another verifier.
    """
    runs = list({run.folder.path: run for experiment in collect(folders) for run in experiment.runs}.values())
    verified = [run for run in runs if run.verdicts]
    if not verified:
        names = " ".join(shlex.quote(str(run.folder.path)) for run in runs[:1])
        raise UserError(f"there are no verdicts to give evidence of: run steadynet verify {names} first")
    checked, names_left = [], (f"P{number}" for number in range(1, 1_000_000))
    verifiers: dict[tuple[str, str], Verifier] = {}
    for run in verified:
        verifier = _verifier_of(run)
        verifiers.setdefault((verifier.name, verifier.settings_line()), verifier)
        checked.append(_network_evidence(run, verifier, names_left))
    return Evidence(
        requirement=requirement,
        eps_reason=eps_reason,
        tool=provenance(),
        tool_sha256=source_hash(Path(steadynet.__file__).parent),
        soundness_version=SOUNDNESS_VERSION,
        networks=tuple(checked),
        self_tests=_self_tests(list(verifiers.values()), self_tests),
        without_verdicts=tuple(run.name for run in runs if not run.verdicts),
    )


def _verifier_of(run: Run) -> Verifier:
    last = run.verdicts[-1]
    return stored_verifier(last.verifier, last.settings, last.timeout)


def _network_evidence(run: Run, verifier: Verifier, names: Iterator[str]) -> NetworkEvidence:
    trained = load_trained(run.folder.path)
    source = run.verdicts[0].data
    test = load_here(source).test
    by_radius: dict[float, list[Row]] = {}
    for row in sorted(run.verdicts, key=lambda row: (row.eps, row.index)):
        by_radius.setdefault(row.eps, []).append(row)
    for eps, rows in by_radius.items():
        _check_rows(trained, test, eps, rows, verifier)
    properties = tuple(
        _property_evidence(
            next(names), run.folder, eps, rows, _sample(source, test, rows, trained.config.input.classes)
        )
        for eps, rows in by_radius.items()
    )
    return NetworkEvidence(
        name=run.name,
        model=trained.config.model,
        method=trained.config.method,
        held_out=_is_held_out(trained, source),
        trained_for=trained.config.eps,
        weights_sha256=weights_hash(trained.network.state_dict()),
        files=tuple(_files(run.folder, source)),
        verifier=verifier.name,
        settings=verifier.settings_line(),
        properties=properties,
        other_rows=len(read_rows(run.folder)) - len(run.verdicts),
        commands=tuple(_commands(trained, verifier, properties)),
    )


def _is_held_out(trained: TrainedNetwork, source: str) -> bool:
    """Whether the network was trained here, from the beginning, on the data set whose test images were verified."""
    config = trained.config
    return not config.is_imported and source == config.data and not config.settings.get("init")


def _check_rows(trained: TrainedNetwork, test: Images, eps: float, rows: Sequence[Row], verifier: Verifier) -> None:
    """Check that the verdicts belong to this network and these images, and that the counterexamples replay."""
    path, positions = trained.run.path, torch.tensor([row.index for row in rows])
    again = f"run steadynet verify {shlex.quote(str(path))} again"
    if int(positions.max()) >= len(test):
        raise UserError(f"{path} has a verdict on image {int(positions.max())}, but there are {len(test)}: {again}")
    pixels, labels = test.pixels(positions), test.labels[positions]
    keys = property_keys(trained.network, pixels, labels, [eps], verifier)
    strange = sum(row.key != keys[eps, place] for place, row in enumerate(rows))
    if strange:
        raise UserError(
            f"{strange} of {len(rows)} verdicts of {path} at ε {eps:g} are of another network, other images or another "
            f"version of the verifier than are there now: {again}"
        )
    properties = Properties.around(trained.network, pixels, labels, eps)
    with evaluation_mode(trained.network):
        for place, row in enumerate(rows):
            if row.verdict is Verdict.SAT and not is_counterexample(
                properties, place, load_counterexample(trained.run, row)
            ):
                raise UserError(f"the counterexample {path / row.counterexample} does not replay: {again}")


def _sample(source: str, test: Images, rows: Sequence[Row], classes: int) -> Sample:
    positions = [row.index for row in rows]
    counts = Counter(int(label) for label in test.labels[torch.tensor(positions)])
    most = max(counts.values())
    first = test.first_of_each_class(most, classes, at_most=True)
    return Sample(
        data=source.removeprefix(data.ALL_TESTS),
        test_images=len(test),
        positions=tuple(positions),
        per_class={str(label): counts[label] for label in sorted(counts)},
        first_of_each_class=most if sorted(first.tolist()) == positions else None,
        sha256=images_hash(test, torch.tensor(positions)),
    )


def _property_evidence(
    name: str, folder: RunDirectory, eps: float, rows: Sequence[Row], sample: Sample
) -> PropertyEvidence:
    counts = VerdictCounts.of(row.verdict for row in rows)
    because = {"timeout": counts.timeout, "unknown": counts.unknown, "error": counts.error}
    return PropertyEvidence(
        name=name,
        eps=eps,
        statement=STATEMENT.format(eps=as_typed(eps)),
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
        verdicts=tuple(_decided(folder, row) for row in rows),
    )


def _decided(folder: RunDirectory, row: Row) -> DecidedProperty:
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
    )


def _files(run: RunDirectory, source: str) -> Iterator[HashedFile]:
    """The files of a run that its verdicts depend on, those of the results, and the user's own file of images."""
    roles = {
        "network (weights)": run.weights,
        "network (ONNX)": run.network_file,
        "network (code)": run.model_source,
        "settings": run.config,
        "verdicts": run.verdicts,
    }
    own = data.own_file(source)
    if own is not None:
        roles["data (file)"] = own
    for role, path in roles.items():
        if path.is_file():
            yield HashedFile(role, path.as_posix(), file_hash(path))


def _commands(trained: TrainedNetwork, verifier: Verifier, properties: Iterable[PropertyEvidence]) -> Iterator[str]:
    """The commands that repeat the training and the verification."""
    run, config = trained.run, trained.config
    changed = any(path.is_file() for path in (run.pruning, run.grafting, run.sparsification))
    if not config.is_imported and not changed:
        yield shlex.join(["steadynet", "train", "--config", str(run.config), "--out", f"{run.path}-again"])
    groups: dict[tuple[str, int, float], list[str]] = {}
    for entry in properties:
        group = (entry.sample.data, max(entry.sample.per_class.values()), max(entry.time_limits))
        groups.setdefault(group, []).append(as_typed(entry.eps))
    for (source, per_class, timeout), radii in groups.items():
        words = ["steadynet", "verify", str(run.path), "--fresh", "--eps", *radii, "--per-class", str(per_class)]
        words += ["--timeout", as_typed(timeout), "--verifier", verifier.name, *settings_as_flags(verifier)]
        own = config.data.removeprefix(data.ALL_TESTS)
        yield shlex.join(words if source == own else [*words, "--data", source])


def _self_tests(verifiers: Sequence[Verifier], given: Sequence[SelfTestRecord]) -> tuple[SelfTestRecord, ...]:
    """The given self-tests, and a short one of each verifier that none of them is about."""
    for record in given:
        if not any(record.is_about(verifier) for verifier in verifiers):
            raise UserError(
                f"the self-test of {record.verifier} ({record.settings}), steadynet {record.steadynet}, is not about "
                "the verifier that decided: leave out --self-test, or test with the same settings"
            )
    missing = [verifier for verifier in verifiers if not any(record.is_about(verifier) for record in given)]
    return (*given, *(short_self_test(verifier) for verifier in missing))
