"""``steadynet export``: other tools get exactly the network and the properties that ``steadynet verify`` decides."""

from __future__ import annotations

import csv
import signal

import numpy as np
import onnxruntime
import pytest
import torch

from runs import command_line, command_line_killed_at_write, command_line_on_a_full_disk, finish
from steadynet import Verdict, load_trained, verify
from steadynet.attacks.region import InputRegion
from steadynet.cli import main
from steadynet.errors import UserError
from steadynet.interchange.export import RobustnessProperties, export
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.vnnlib.files import VERSIONS, read_vnnlib
from steadynet.interchange.vnnlib.robustness import format_robustness, robustness_property
from verified import refused, rows_of, said

SELECTION = ("--eps", "0.05", "3/10", "--per-class", "3")
LISTS = {"1.0": "instances.csv", "2.0": "instances-2.0.csv"}


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "deep" / "out"
    assert main(["export", str(trained), *SELECTION, "--timeout", "7.5", "--out", str(folder)]) == 0
    return folder


def instances(folder, version="1.0"):
    with (folder / LISTS[version]).open(newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("version", VERSIONS)
def test_instances_are_those_that_verify_decides(version, exported, whole):
    rows = instances(exported, version)
    assert len(rows) == 2 * 12
    assert {(network, timeout) for network, _, timeout in rows} == {("model.onnx", "7.5")}
    verified = {(row.index, row.eps) for row in rows_of(whole) if row.eps in (0.05, 0.3)}
    assert {file for _, file, _ in rows} == {f"vnnlib/{version}/prop_{i}_eps_{eps!r}.vnnlib" for i, eps in verified}
    assert {path.relative_to(exported).as_posix() for path in exported.glob(f"vnnlib/{version}/*")} == {
        file for _, file, _ in rows
    }


def test_the_model_is_the_network_with_its_normalisation(exported, trained):
    known, read = load_trained(trained), read_onnx(exported / "model.onnx")
    images = known.data().test.pixels()[:5]
    session = onnxruntime.InferenceSession(exported / "model.onnx", providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = known.network(images)
        torch.testing.assert_close(read(images), expected, rtol=1e-4, atol=1e-5)
    (found,) = session.run(None, {"input": images.numpy()})
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("version", VERSIONS)
def test_boxes_and_labels_are_exact(version, exported, trained):
    test = load_trained(trained).data().test
    for eps in (0.05, 0.3):
        for index in test.first_of_each_class(3, 4).tolist():
            found = read_vnnlib(exported / "vnnlib" / version / f"prop_{index}_eps_{eps!r}.vnnlib")
            label = int(test.labels[index])
            box = InputRegion.around(test.pixels(torch.tensor([index])), eps)
            assert (found.input_size, found.output_size, len(found.disjuncts)) == (36, 4, 3)
            rows = []
            for disjunct in found.disjuncts:
                for found_corner, corner in ((disjunct.lower, box.lower), (disjunct.upper, box.upper)):
                    assert (
                        found_corner.astype(np.float32).tolist() == found_corner.tolist() == corner.flatten().tolist()
                    )
                assert disjunct.bound.tolist() == [0.0]
                rows += disjunct.matrix.tolist()
            eye = np.eye(4)
            assert sorted(rows) == sorted((eye[label] - eye[other]).tolist() for other in range(4) if other != label)


def test_verdicts_of_the_export_are_those_of_the_run(exported, trained, whole):
    read, test = read_onnx(exported / "model.onnx"), load_trained(trained).data().test
    known = {(row.index, row.eps): row.verdict for row in rows_of(whole)}
    index = test.first_of_each_class(3, 4)
    for eps in (0.05, 0.3):
        results = verify(read, test.pixels(index), test.labels[index], eps, timeout=20)
        assert [result.verdict for result in results] == [known[i, eps] for i in index.tolist()]
    assert {known[key] for key in known} == {Verdict.UNSAT, Verdict.SAT}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_competitions_command_takes_the_list(version, exported, whole, tmp_path, capsys):
    said(capsys, "vnncomp", "--instances", exported / LISTS[version], "--out", tmp_path / "results.csv")
    known = {f"prop_{row.index}_eps_{row.eps!r}.vnnlib": row.verdict.value for row in rows_of(whole)}
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    assert all(row["verdict"] == known[row["property"].split("/")[-1]] for row in rows)


def test_one_line_says_what_was_written(trained, tmp_path, capsys):
    line = said(capsys, "export", trained, "--eps", "0.1", "--per-class", 1, "--out", tmp_path / "out")
    names = " and ".join(LISTS[version] for version in VERSIONS)
    versions = " and ".join(VERSIONS)
    assert line == f"written: {tmp_path / 'out'}: model.onnx, 4 properties as VNN-LIB {versions}, and {names}\n"


def test_an_earlier_export_is_replaced(trained, tmp_path, capsys):
    out = tmp_path / "out"
    said(capsys, "export", trained, "--eps", "0.1", "--per-class", 2, "--out", out)
    (out / "notes.txt").write_text("mine")
    said(capsys, "export", trained, "--per-class", 1, "--out", out)
    assert [file.count("eps_0.3") for _, file, _ in instances(out)] == [1] * 4  # the radius of the training
    assert len(list(out.glob("vnnlib/1.0/*"))) == 4
    assert (out / "notes.txt").read_text() == "mine"


def test_other_folders_are_left_alone(trained, tmp_path, capsys):
    (tmp_path / "model.onnx").write_text("somebody's")
    line = refused(capsys, "export", trained, "--out", tmp_path)
    assert (
        line == f"steadynet: error: {tmp_path} holds other files, not an earlier export: name a new folder with --out"
    )
    assert (tmp_path / "model.onnx").read_text() == "somebody's"
    assert "is a file" in refused(capsys, "export", trained, "--out", tmp_path / "model.onnx")
    assert "holds other files" in refused(capsys, "export", trained, "--out", trained)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--timeout", "0"], "'0' is not a time in seconds above 0"),
        (["--timeout", "soon"], "'soon' is not a time in seconds above 0"),
        (["--eps", "2"], "eps = 2 is too large"),
        (["--per-class", "99"], "has only 12 images"),
        (["--data", "digits"], "(1, 28, 28)"),
    ],
)
def test_mistakes_are_answered_in_one_line_and_nothing_is_written(arguments, words, trained, tmp_path, capsys):
    assert words in refused(capsys, "export", trained, *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_out_must_be_named(trained, capsys):
    assert "--out" in refused(capsys, "export", trained)


def test_other_data_of_the_same_shape(trained, tmp_path, capsys):
    with np.load(trained.parent / "small.npz") as known:
        np.savez(tmp_path / "turned.npz", X=1 - known["X"] if known["X"].max() <= 1 else 255 - known["X"], y=known["y"])
    said(capsys, "export", trained, *SELECTION, "--data", tmp_path / "turned.npz", "--out", tmp_path / "out")
    assert len(instances(tmp_path / "out")) == 24
    assert "turned.npz" in (tmp_path / "out" / "export.toml").read_text()


def test_a_full_disk_leaves_no_list(trained, tmp_path):
    out, output = tmp_path / "out", tmp_path / "said"
    arguments = ["export", str(trained), *SELECTION, "--out", str(out)]
    assert finish(command_line_on_a_full_disk, arguments, output, 3000) == 2
    (line,) = output.read_text().splitlines()
    assert line.startswith("steadynet: error: cannot write")
    assert not (out / "instances.csv").exists()


def test_a_killed_export_has_no_list_and_the_same_command_begins_anew(exported, trained, tmp_path):
    out, output = tmp_path / "out", tmp_path / "said"
    arguments = ["export", str(trained), *SELECTION, "--timeout", "7.5", "--out", str(out)]
    for write in (1, 2, 9):  # before the model, before the first property, and later
        assert finish(command_line_killed_at_write, arguments, output, write) == -signal.SIGKILL
        assert not (out / "instances.csv").exists()
    assert finish(command_line, arguments, output) == 0
    for path in exported.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (out / path.relative_to(exported)).read_bytes()
    assert not [path for path in out.rglob("*.vnnlib") if not (exported / path.relative_to(out)).exists()]


@pytest.mark.parametrize("label", [-1, 2, 7])
def test_labels_outside_the_classes_are_refused(label, tmp_path):
    """A label of −1 would be read as the last class."""
    network, images = torch.nn.Sequential(torch.nn.Linear(3, 2)), torch.rand(2, 3)
    properties = RobustnessProperties(images, torch.tensor([0, label]), [0, 1], [0.1], class_count=2)
    with pytest.raises(UserError, match=f"a label {label}, but there are 2 classes: 0 to 1"):
        export(network, properties, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
    for write in (robustness_property, format_robustness):
        with pytest.raises(UserError, match=f"a label {label}, but the network has 2 classes: 0 to 1"):
            write(images[0], images[0], label, 2)
