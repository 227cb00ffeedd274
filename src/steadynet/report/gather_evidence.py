"""Gather the evidence of runs, and check that the stored verdicts belong to the files that are there now."""

from __future__ import annotations

import shlex
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
from steadynet.report.evidence import NOT_STATED, Evidence, HashedFile, NetworkEvidence, PropertyEvidence
from steadynet.report.evidence_parts import Names, property_evidence, sample_of
from steadynet.report.gather_regions import properties_in_regions, radii_of, radius_commands, region_commands
from steadynet.report.hashes import file_hash, source_hash, weights_hash
from steadynet.report.records import Run
from steadynet.runs.directory import RunDirectory
from steadynet.runs.trained import TrainedNetwork, load_trained
from steadynet.verification.asked import Asked
from steadynet.verification.proofs.of_run import proofs_of
from steadynet.verification.properties import Properties, Verdict, is_counterexample
from steadynet.verification.radius_table import read_radii
from steadynet.verification.region_table import read_regions
from steadynet.verification.self_test.record import SelfTestRecord, short_self_test
from steadynet.verification.stored_verifier import as_typed, settings_as_flags, stored_verifier
from steadynet.verification.verdict_key import SOUNDNESS_VERSION, property_keys
from steadynet.verification.verdicts import Row, load_counterexample, read_rows
from steadynet.verification.verifiers import Verifier


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
    verified = [run for run in runs if has_something(run)]
    if not verified:
        names = " ".join(shlex.quote(str(run.folder.path)) for run in runs[:1])
        raise UserError(f"there are no verdicts to give evidence of: run steadynet verify {names} first")
    given = Names()
    checked = [_network_evidence(run, given) for run in verified]
    return Evidence(
        requirement=requirement,
        eps_reason=eps_reason,
        tool=provenance(),
        tool_sha256=source_hash(Path(steadynet.__file__).parent),
        soundness_version=SOUNDNESS_VERSION,
        networks=tuple(checked),
        self_tests=_self_tests(list(given.verifiers.values()), self_tests),
        without_verdicts=tuple(run.name for run in runs if run not in verified),
    )


def has_something(run: Run) -> bool:
    """Whether there are verdicts or radii of a run."""
    return bool(run.verdicts or read_regions(run.folder.regions) or read_radii(run.folder))


def _network_evidence(run: Run, names: Names) -> NetworkEvidence:
    trained = load_trained(run.folder.path)
    properties = (*_in_boxes(trained, run, names), *properties_in_regions(trained, names))
    radii = tuple(radii_of(trained, names))
    return NetworkEvidence(
        name=run.name,
        model=trained.config.model,
        method=trained.config.method,
        held_out=all(_is_held_out(trained, source) for source in _sources(run)),
        trained_for=trained.config.eps,
        weights_sha256=weights_hash(trained.network.state_dict()),
        files=tuple(_files(run.folder, _sources(run))),
        properties=properties,
        radii=radii,
        other_rows=len(read_rows(run.folder)) - len(run.verdicts),
        commands=(*_commands(trained, properties), *region_commands(trained), *radius_commands(trained)),
    )


def _in_boxes(trained: TrainedNetwork, run: Run, names: Names) -> Iterator[PropertyEvidence]:
    """The properties of ``verdicts.csv``, one per radius."""
    by_radius: dict[float, list[Row]] = {}
    for row in sorted(run.verdicts, key=lambda row: (row.eps, row.index)):
        by_radius.setdefault(row.eps, []).append(row)
    if not by_radius:
        return
    last = run.verdicts[-1]
    verifier = names.remember(stored_verifier(last.verifier, last.settings, last.timeout))
    test = load_here(last.data).test
    for eps, rows in by_radius.items():
        _check_rows(trained, test, eps, rows, verifier)
    for eps, rows in by_radius.items():
        sample = sample_of(last.data, test, [row.index for row in rows], trained.config.input.classes)
        proofs = {image: proof for (_, image), proof in proofs_of(trained, test, rows).items()}
        yield property_evidence(names.property(), run.folder, eps, Asked("eps", as_typed(eps)), rows, sample, proofs)


def _sources(run: Run) -> list[str]:
    """The data sets of the images that were verified."""
    regions, radii = read_regions(run.folder.regions), read_radii(run.folder)
    sources = [row.data for row in run.verdicts] + [row.data for row in regions] + [row.data for row in radii]
    return list(dict.fromkeys(sources))


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


def _files(run: RunDirectory, sources: Sequence[str]) -> Iterator[HashedFile]:
    """The files of a run that its verdicts depend on, those of the results, and the user's own files of images."""
    roles = {
        "network (weights)": run.weights,
        "network (ONNX)": run.network_file,
        "network (code)": run.model_source,
        "settings": run.config,
        "verdicts": run.verdicts,
        "verdicts (regions)": run.regions,
        "radii": run.radii,
    }
    own = [("data (file)", path) for path in map(data.own_file, sources) if path is not None]
    limits = {row.parameters for row in read_regions(run.regions) if row.asked == "region"}
    own += [("limits of regions", Path(name)) for name in sorted(limits)]
    for role, path in (*roles.items(), *own):
        if path.is_file():
            yield HashedFile(role, path.as_posix(), file_hash(path))


def _commands(trained: TrainedNetwork, properties: Iterable[PropertyEvidence]) -> Iterator[str]:
    """The commands that repeat the training and the verification in ε-boxes."""
    run, config = trained.run, trained.config
    changed = any(path.is_file() for path in (run.pruning, run.grafting, run.sparsification))
    if not config.is_imported and not changed:
        yield shlex.join(["steadynet", "train", "--config", str(run.config), "--out", f"{run.path}-again"])
    groups: dict[tuple[str, int, float], list[str]] = {}
    verifier = None
    for entry in properties:
        if entry.eps is None:
            continue
        verifier = stored_verifier(entry.verifier, entry.settings, max(entry.time_limits))
        group = (entry.sample.data, max(entry.sample.per_class.values()), max(entry.time_limits))
        groups.setdefault(group, []).append(as_typed(entry.eps))
    for (source, per_class, timeout), radii in groups.items():
        assert verifier is not None
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
