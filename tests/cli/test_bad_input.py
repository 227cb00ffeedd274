"""Every mistake a newcomer can make: one clear line, exit code 2, no traceback, and nothing lost."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from runs import files, tiny, write_inputs
from steadynet import resolve, train
from steadynet.cli import main
from steadynet.errors import UserError
from steadynet.runs.directory import RunDirectory
from steadynet.runs.metrics import EpochMetrics
from steadynet.runs.tensors import load_tensors, save_tensors

BROKEN_MODELS = {
    "raises.py": "raise ValueError('boom')",
    "asserts.py": "assert False",
    "exits.py": "raise SystemExit(7)",
    "syntax.py": "def make(:",
    "imports.py": "import not_there",
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A finished run, a stopped one, and every kind of wrong input for a training."""
    folder = tmp_path_factory.mktemp("bad")
    write_inputs(folder)
    for name, text in BROKEN_MODELS.items():
        (folder / name).write_text(text)
    assert main(["train", *tiny(folder), "--out", str(folder / "run")]) == 0
    shutil.copytree(folder / "run", folder / "stopped")
    (folder / "stopped" / "weights.safetensors").unlink()
    images, labels = np.zeros((40, 6, 6)), np.arange(40) % 4
    np.savez(folder / "bright.npz", X=images + 255.0, y=labels)
    np.savez(folder / "negative.npz", X=images, y=labels - 1)
    np.savez(folder / "gap.npz", X=images, y=labels * 2)
    np.savez(folder / "unpaired.npz", X=images[:30], y=labels)
    np.savez(folder / "cube.npz", X=images[:, None, None], y=labels)
    np.savez(folder / "named.npz", images=images, labels=labels)
    np.savez(folder / "flat.npz", X=images.reshape(40, 36), y=labels)
    split = {"X_train": images, "y_train": labels, "X_test": images, "y_test": labels + 3}
    np.savez(folder / "strange.npz", **split)
    (folder / "text.npz").write_text("not an array")
    (folder / "notes").mkdir()
    (folder / "notes" / "thesis.txt").write_text("the only copy")
    (folder / "site").mkdir()
    (folder / "site" / "config.toml").write_text("title = 'somebody else'")
    (folder / "broken.toml").write_text("epochs = [")
    (folder / "misspelt.toml").write_text("epoch = 3")
    (folder / "flat.toml").write_text("methods = 3")
    return folder


@pytest.fixture
def folder(prepared, tmp_path):
    """A copy of it all, so that a test may break things."""
    shutil.copytree(prepared, tmp_path / "all")
    return tmp_path / "all"


def refused(capsys, folder, *arguments):
    """Run a command that must be refused, and return its one line; nothing in the folder may change."""
    before = files(folder)
    assert main([str(word) for word in arguments]) == 2
    output = capsys.readouterr()
    lines = output.err.splitlines()
    assert len(lines) == 1, output.err
    assert lines[0].startswith("steadynet: error: ")
    assert files(folder) == before
    return lines[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"eps": "0"}, "eps = 0 must be larger than 0"),
        ({"eps": "-0.1"}, "eps = -0.1 must be larger than 0"),
        ({"eps": "nan"}, "a radius is a number such as 0.3, or a fraction such as 8/255"),
        ({"eps": "abc"}, "a radius is a number such as 0.3, or a fraction such as 8/255"),
        ({"eps": "0,3"}, "a radius is a number such as 0.3, or a fraction such as 8/255"),
        ({"eps": "8"}, "write 8/255 for 8 grey levels"),
        ({"epochs": "1.5"}, "argument --epochs: must be a whole number, not '1.5'"),
        ({"epochs": "-1"}, "epochs = -1 must be 1 or more"),
        ({"lr": "fast"}, "argument --lr: must be a number, not 'fast'"),
        ({"seed": "99999999999999999999"}, "seed = 99999999999999999999 must be 0 or more"),
        ({"threads": "0"}, "threads = 0 must be 1 or more"),
        ({"schedule": "one_cycle"}, "must be constant, one-cycle or drops, not 'one_cycle'"),
        ({"device": "gpu"}, "must be auto, cpu, cuda or mps, not 'gpu'"),
        ({"device": "mps"}, "device mps is not available on this machine"),
        ({"method": "nbcc"}, "unknown method 'nbcc': did you mean 'nbc'?"),
        ({"method": "natural:3"}, "unknown method 'natural:3': did you mean 'natural'?"),
        ({"method": None, "epochs": None, "phases": "nbc"}, "phase 'nbc' is not METHOD:EPOCHS"),
        ({"phases": "nbc:3"}, "give phases, or method and epochs"),
        ({"beta": "2"}, "beta is a setting of nbc, which method 'natural' does not use"),
        ({"method": "nbc", "gamma": "1,2,3"}, "gamma has 3 numbers, but the network has 1 ReLU layers"),
        ({"betta": "2"}, "unknown option '--betta': did you mean --beta? (see steadynet train --help)"),
        ({"epoch": "2"}, "unknown option '--epoch': did you mean --epochs?"),
        ({"data": "mnits"}, "unknown data set 'mnits': did you mean 'mnist'?"),
        ({"data": "{}/nothing.npz"}, "there is no file"),
        ({"data": "{}/bright.npz"}, "must lie in [0, 1], but its values go from 255 to 255"),
        ({"data": "{}/negative.npz"}, "must be 0 or more, but the smallest is -1"),
        ({"data": "{}/gap.npz"}, "without gaps, but no training image has label 1"),
        ({"data": "{}/strange.npz"}, "has a label 6, but its 4 classes are 0 to 3"),
        ({"data": "{}/unpaired.npz"}, "holds 30 images but y 40 labels"),
        ({"data": "{}/cube.npz"}, "must be (N, C, H, W), (N, H, W) or (N, D)"),
        ({"data": "{}/named.npz"}, "needs arrays X and y"),
        ({"data": "{}/text.npz"}, "cannot be read"),
        ({"data": "{}"}, "holds no pictures"),
        ({"data": "{}/flat.npz", "model": "M1"}, "needs images (channels, height, width), not (36,)"),
        ({"model": "m1"}, "unknown model 'm1': did you mean 'M1'?"),
        ({"model": "C1"}, "images of 6×6 pixels are too small for this network"),
        ({"model": "{}/net.py"}, "names no factory"),
        ({"model": "{}/net.py:tinny"}, "unknown factory in net.py 'tinny': did you mean 'tiny'?"),
        ({"model": "{}/nothing.py:tiny"}, "no file"),
        ({"model": "{}/raises.py:make"}, "raises.py cannot be imported: ValueError: boom (line 1)"),
        ({"model": "{}/asserts.py:make"}, "asserts.py cannot be imported: AssertionError"),
        ({"model": "{}/exits.py:make"}, "exits.py cannot be imported: SystemExit: 7"),
        ({"model": "{}/syntax.py:make"}, "syntax.py cannot be imported: SyntaxError: invalid syntax"),
        ({"model": "{}/imports.py:make"}, "No module named 'not_there'"),
        ({"model": "{}/net.py:failing"}, "net.py:failing failed: KeyError: 'boom'"),
        ({"model": "{}/net.py:no_network"}, "net.py:no_network returned int, not an nn.Module"),
        ({"model": "{}/net.py:hungry"}, "net.py:hungry wants appetite"),
        ({"model": "{}/net.py:eleven_classes"}, "the model's output has shape (11,), but the data has 4 classes"),
        ({"model": "{}/net.py:without_relu", "method": "nbc"}, "has no ReLU"),
        ({"model": "{}/net.py:without_weights"}, "the model has no weights to train"),
        ({"init": "{}/nothing"}, "/nothing does not exist"),
        ({"init": "{}/stopped"}, "is not finished: steadynet train --resume --out"),
        ({"init": "{}/run", "model": "{}/net.py:tied"}, "are of another network"),
        ({"config": "{}/nothing.toml"}, "cannot read"),
        ({"config": "{}/broken.toml"}, "broken.toml is not valid TOML"),
        ({"config": "{}/misspelt.toml"}, "unknown setting 'epoch': did you mean 'epochs'?"),
        ({"config": "{}/flat.toml"}, "methods holds a table for each method"),
        ({"out": "{}/run"}, "exists: give --resume to continue it, or --overwrite to replace it"),
        ({"out": "{}/notes"}, "exists and is not a run directory: choose another --out"),
        ({"out": "{}/net.py"}, "exists and is not a run directory: choose another --out"),
        ({"out": "{}/net.py/run"}, "cannot write"),
        ({"out": "/proc/run"}, "cannot write /proc/run"),
        ({"out": "{}/" + "long" * 100}, "File name too long"),
        ({"out": None}, "name the run directory to write, such as --out runs/first"),
    ],
)
def test_trainings_that_are_refused(prepared, tmp_path, capsys, changes, said):
    given = {"out": str(tmp_path / "new")} | changes
    here = {key: value.replace("{}", str(prepared)) if value else None for key, value in given.items()}
    assert said in refused(capsys, prepared, "train", *tiny(prepared, **here))
    assert not any(tmp_path.iterdir())


def test_a_missing_gpu_is_reported(prepared, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    line = refused(capsys, prepared, "train", *tiny(prepared, device="cuda"), "--out", tmp_path / "new")
    assert "device cuda is not available on this machine" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trian"], "unknown command 'trian': did you mean 'train'?"),
        (["--versoin"], "unknown option '--versoin': did you mean --version?"),
        (["train"], "name the run directory to write"),
        (["train", "--eps"], "argument --eps: expected one argument"),
        (["train", "--out"], "argument --out: expected one argument"),
        (["train", "mnist"], "'mnist' is one argument too many"),
        (["train", "--resume"], "name the run directory to write"),
        (["train", "--resume", "--out", "{}/nothing"], "/nothing to resume: leave out --resume to start one"),
        (["train", "--resume", "--overwrite", "--out", "{}/run"], "give one of them"),
        (["train", "--resume", "--seed", "4", "--out", "{}/run"], "but seed would change"),
        (["train", "--resume", "--seed", "4", "--out", "{}/notes"], "exists and is not a run directory"),
        (["train", "--overwrite", "--out", "{}/notes"], "exists and is not a run directory"),
        (["train", "--overwrite", "--out", "{}/site"], "exists and is not a run directory"),
        (["train", "--overwrite", "--out", "{}/net.py"], "exists and is not a run directory"),
        (["train", "--overwrite", "--out", "{}/run", "--init", "{}/run"], "cannot be both --init and --out"),
        (["evaluate"], "the following arguments are required: NETWORK"),
        (["evaluate", "{}/nothing"], "/nothing does not exist: give the directory that steadynet train wrote"),
        (
            ["evaluate", "{}/notes"],
            "(it has no config.toml): give the directory that steadynet train wrote",
        ),
        (
            ["evaluate", "{}/net.py"],
            "is no network: give a run directory, an ONNX file, or file.py:factory",
        ),
        (["evaluate", "{}"], "give the directory that steadynet train wrote, such as /"),
        (["evaluate", "{}/stopped"], "is not finished: steadynet train --resume --out"),
        (["evaluate", "{}/run", "--eps"], "argument --eps: expected at least one argument"),
        (["evaluate", "{}/run", "--eps", "0.1,0.2"], "a radius is a number such as 0.3"),
        (["evaluate", "{}/run", "--eps", "0.1", "-1"], "eps = -1 must be larger than 0"),
        (["evaluate", "{}/run", "--pgd-steps", "0"], "'0' is not a whole number above 0"),
        (["evaluate", "{}/run", "--images", "ten"], "'ten' is not a whole number above 0"),
        (["evaluate", "{}/run", "--data", "digits"], "the model cannot take images of shape (1, 28, 28)"),
        (["evaluate", "{}/run", "--jsn"], "unknown option '--jsn': did you mean --json?"),
        (["data"], "required: list|fetch|where (see steadynet data --help)"),
        (["data", "get", "mnist"], "unknown action 'get': there are fetch, list, where."),
        (["data", "fetch"], "name the data sets to fetch: cifar10, digits, fashion-mnist, mnist"),
        (["data", "fetch", "mnits"], "unknown data set 'mnits': did you mean 'mnist'?"),
        (["data", "list", "mnist"], "did you mean steadynet data fetch mnist?"),
        (["list", "method"], "unknown kind of thing 'method': did you mean 'methods'?"),
        (["demo", "--epochs", "0"], "'0' is not a whole number above 0"),
    ],
)
def test_commands_that_are_refused(prepared, capsys, arguments, said):
    assert said in refused(capsys, prepared, *(word.replace("{}", str(prepared)) for word in arguments))


# Damaged files


def truncate(path):
    path.write_bytes(path.read_bytes()[:-50])


def empty(path):
    path.write_bytes(b"")


def flip(position):
    def damage(path):
        content = bytearray(path.read_bytes())
        content[position] ^= 1
        path.write_bytes(content)

    return damage


DAMAGES = [truncate, empty, flip(0), flip(40), flip(-1), flip(-700)]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_weights(folder, capsys, damage):
    damage(folder / "run" / "weights.safetensors")
    line = refused(capsys, folder, "evaluate", folder / "run")
    assert "weights.safetensors is damaged and cannot be used" in line


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint(folder, stopped, capsys, damage):
    damage(stopped / "checkpoint.safetensors")
    line = refused(capsys, folder, "train", "--resume", "--out", stopped)
    assert "checkpoint.safetensors is damaged and cannot be used" in line


def test_every_flipped_byte_of_a_checkpoints_metadata_is_detected(stopped):
    path = stopped / "checkpoint.safetensors"
    whole = path.read_bytes()
    start = whole.index(b"position")
    for position in range(start, start + 120):
        path.write_bytes(whole)
        flip(position)(path)
        with pytest.raises(UserError, match="is damaged"):
            load_tensors(path)


@pytest.fixture
def stopped(folder, monkeypatch):
    """A run that was stopped after an epoch, with its checkpoint."""
    settings = resolve(RunDirectory(folder / "run").read_config().settings)
    monkeypatch.setattr(RunDirectory, "add_metrics", _stop_in_second_epoch)
    with pytest.raises(KeyboardInterrupt):
        train(settings, folder / "half")
    monkeypatch.undo()
    assert (folder / "half" / "checkpoint.safetensors").is_file()
    return folder / "half"


def _stop_in_second_epoch(run, metrics):
    if metrics.epoch == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "config.toml is damaged: it has no data, eps, input.classes, input.image_shape, model"),
        ("data = ", "config.toml is not valid TOML"),
        ("data = 'x'\nmodel = 'x'\neps = 0.1\ninput = 3", "it has no input.classes, input.image_shape"),
        (b"\xff\xfe", "cannot read"),
    ],
)
@pytest.mark.parametrize("command", [["evaluate"], ["train", "--resume", "--out"]])
def test_a_damaged_configuration(folder, capsys, command, text, said):
    (folder / "run" / "config.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert said in refused(capsys, folder, *command, folder / "run")


def test_damaged_metrics_do_not_stop_a_training(stopped, capsys):
    first = EpochMetrics(1, "natural", 0.1, 1e-3, 2.0, {"cross_entropy": 0.5}).to_line()
    (stopped / "metrics.jsonl").write_bytes(first.encode() + b'\n3\n\xff{"epo')
    assert main(["train", "--resume", "--out", str(stopped)]) == 0
    assert [row.epoch for row in RunDirectory(stopped).read_metrics()] == [1, 2]


def test_an_evaluation_that_cannot_be_written_is_still_shown(folder, capsys):
    (folder / "run" / "evaluation.json").mkdir()
    assert main(["evaluate", str(folder / "run"), "--pgd-steps", "1", "--eps", "0.1"]) == 2
    output = capsys.readouterr()
    assert "PGD-1 accuracy" in output.out
    assert "cannot write" in output.err
    assert len(output.err.splitlines()) == 1


def test_a_folder_without_write_permission(folder, capsys, monkeypatch):
    """Root may write everywhere, so the call itself is made to fail."""

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.write_text", denied)
    line = refused(capsys, folder, "train", *tiny(folder), "--out", folder / "locked")
    assert "cannot write" in line
    assert "Permission denied" in line


@pytest.mark.parametrize("command", ["verify", "export", "cross-check"])
def test_weights_that_are_not_finite_are_one_line(folder, capsys, command):
    weights = folder / "run" / "weights.safetensors"
    tensors, facts = load_tensors(weights)
    next(value for value in tensors.values() if value.dim() == 2)[0, 0] = float("nan")
    save_tensors(weights, tensors, facts)
    out = ["--out", folder / "exported"] if command == "export" else []
    assert main([str(word) for word in (command, folder / "run", "--eps", "0.1", *out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "NaN or infinite" in line
    assert not (folder / "exported").exists()
