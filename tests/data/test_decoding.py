"""Published files become arrays, and progress is shown where someone can see it."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from PIL import Image

from steadynet.data.cache import ARRAY_NAMES
from steadynet.data.cifar10 import BATCHES, decode_binary, decode_strips
from steadynet.data.idx import decode_idx
from steadynet.data.progress import progress_bar, silent


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\x08", b"\0\0\x0d\x01\0\0\0\0", b"\0\0\x08\x01\0\0\0\x09abc", b"\0\0\x08\x03\0"]
)
def test_a_bad_idx_file_is_a_value_error(content):
    with pytest.raises(ValueError, match=r"."):
        decode_idx(content)


def test_both_forms_of_cifar10_decode_to_the_same_arrays():
    chance = np.random.default_rng(0)
    binary, strips, labels = {}, {}, {}
    for part, names in BATCHES.items():
        for name in names:
            planes = chance.integers(0, 256, (7, 3, 32, 32), dtype=np.uint8)
            classes = chance.integers(0, 10, 7, dtype=np.uint8)
            binary[f"{name}.bin"] = b"".join(bytes([c]) + p.tobytes() for c, p in zip(classes, planes, strict=True))
            file = io.BytesIO()
            Image.fromarray(planes.transpose(0, 2, 3, 1).reshape(7, 1024, 3)).save(file, "PNG")
            strips[f"{name}.png"] = file.getvalue()
            labels.setdefault(part, []).extend(classes.tolist())
    strips.update({f"{part}_lables.json": str(values).encode() for part, values in labels.items()})
    one, other = decode_binary(binary), decode_strips(strips)
    assert all(np.array_equal(one[name], other[name]) for name in ARRAY_NAMES)
    with pytest.raises(FileNotFoundError, match=r"no test_batch\.bin in it"):
        decode_binary({name: content for name, content in binary.items() if "test" not in name})


def test_the_bar_is_drawn_in_a_terminal_only(monkeypatch, capsys):
    with progress_bar() as show:
        assert show is silent
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress_bar() as show:
        show("file.gz", 1, 2)
        show("file.gz", 2, 2)
        show("npm pack", 0, None)
    assert "file.gz" in capsys.readouterr().err
