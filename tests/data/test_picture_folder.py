"""Folders of pictures and ``.npy`` files as data sets."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from steadynet import data
from steadynet.errors import UserError


def save_picture(path, value, size=(2, 3), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def test_sub_folders_are_labels(tmp_path):
    for label in (0, 3):
        for number in range(2):
            save_picture(tmp_path / str(label) / f"{number}.png", 10 * label + number)
    found = data.load(f"all:{tmp_path}")
    assert found.test.labels.tolist() == [0, 0, 3, 3]
    assert found.test.images[:, 0, 0, 0].tolist() == [0, 1, 30, 31]
    assert found.image_shape == (1, 3, 2)  # a picture is 2 pixels wide and 3 high
    assert len(found.train) == 0


def test_names_of_sub_folders_are_classes(tmp_path):
    for name in ("cat", "dog"):
        for number in range(5):
            save_picture(tmp_path / name / f"{number}.png", (1, 2, 3), mode="RGB")
    found = data.load(tmp_path)
    assert found.classes == ("cat", "dog")
    assert found.image_shape == (3, 3, 2)
    assert (len(found.train), len(found.test)) == (8, 2)
    assert found.test.images[0, :, 0, 0].tolist() == [1, 2, 3]


def test_a_table_of_labels(tmp_path):
    for number in range(3):
        save_picture(tmp_path / f"{number}.png", number)
    (tmp_path / "labels.csv").write_text("file,label\n2.png,0\n0.png,1\n1.png,1\n")
    found = data.load(f"all:{tmp_path}")
    assert found.test.labels.tolist() == [0, 1, 1]
    assert found.test.images[:, 0, 0, 0].tolist() == [2, 0, 1]


def test_npy_files(tmp_path):
    np.save(tmp_path / "images.npy", np.full((4, 1, 2, 2), 0.5))
    with pytest.raises(UserError, match=r"labels\.npy"):
        data.load(tmp_path / "images.npy")
    np.save(tmp_path / "labels.npy", np.array([0, 1, 0, 1]))
    found = data.load(f"all:{tmp_path / 'images.npy'}")
    assert found.test.labels.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no pictures"),
        ({"0/a.png": b"no picture"}, "cannot be read as a picture"),
        ({"labels.csv": b"name,class\n"}, "columns file and label"),
        ({"labels.csv": b"file,label\nnot-there.png,0\n"}, "there is no picture"),
    ],
)
def test_bad_folders_are_one_clear_line(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        data.load(tmp_path)


def test_pictures_of_several_sizes_are_refused(tmp_path):
    save_picture(tmp_path / "0" / "a.png", 1)
    save_picture(tmp_path / "0" / "b.png", 1, size=(5, 5))
    with pytest.raises(UserError, match="5x5 pixels"):
        data.load(tmp_path)


def test_a_data_set_prints_on_one_line():
    assert "\n" not in repr(data.load("digits"))
    assert "28" in repr(data.load("digits").test)
