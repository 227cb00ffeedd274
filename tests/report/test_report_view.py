"""``steadynet view``: served on this machine alone, made anew when files change, ended by Ctrl-C."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time

import pytest

from reports import verdict, write_run
from runs import command_line, start
from steadynet.files import append_line
from steadynet.report.serve import make_server
from steadynet.runs.directory import RunDirectory
from steadynet.verification.verdicts import row_as_line
from verified import refused


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", [verdict(0)])


@pytest.fixture
def server(run):
    with make_server([run], 0) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def version(server):
    return json.loads(ask(server, "/state.json")[1])["version"]


def test_the_page_follows_its_files(server, run):
    before = version(server)
    assert f'"live":"{before}"' in ask(server, "/")[1]
    assert version(server) == before
    append_line(RunDirectory(run).verdicts, row_as_line(verdict(7)))
    after = version(server)
    page = ask(server, "/")[1]
    assert after != before
    assert f'"live":"{after}"' in page
    assert '"index":[0,7]' in page


def test_a_file_that_is_half_written_leaves_the_page_as_it_was(server, run):
    page = ask(server, "/")
    (run / "evaluation.json").write_text('{"accuracy"')
    assert ask(server, "/") == page


def test_no_other_host_and_no_other_file(server):
    assert server.server_address[0] == "127.0.0.1"
    assert ask(server, "/", Host="evil.example")[0] == 403
    assert ask(server, "/../run/config.toml")[0] == 404
    assert ask(server, "/config.toml")[0] == 404


def test_mistakes_are_one_line(run, tmp_path, capsys):
    assert "missing does not exist" in refused(capsys, "view", tmp_path / "missing")
    assert "the largest port is 65535" in refused(capsys, "view", run, "--port", "70000")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "choose another with --port" in refused(capsys, "view", run, "--port", str(port))


def test_ctrl_c_ends_it(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = tmp_path / "log"
    process = start(command_line, ["view", str(run), "--port", str(port)], log)
    end = time.monotonic() + 60
    while time.monotonic() < end and (not log.is_file() or "Ctrl-C" not in log.read_text()):
        time.sleep(0.05)
        if process.exitcode is not None:
            break
    for _ in range(100):  # what was said may still be in a buffer: until it answers
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    process.join(20)
    assert process.exitcode == 0
    assert log.read_text().splitlines() == [
        f"The report is at http://127.0.0.1:{port}/ and follows its files. Stop it with Ctrl-C.",
        "stopped",
    ]


def test_an_open_page_reloads_itself(server, run, driver):
    driver.get(f"http://127.0.0.1:{server.server_port}/")
    count = "return document.querySelector('#count').innerText"
    assert driver.execute_script(count).startswith("1 of 1 properties")
    append_line(RunDirectory(run).verdicts, row_as_line(verdict(7)))
    end = time.monotonic() + 20
    while not driver.execute_script(count).startswith("2 of 2"):
        assert time.monotonic() < end
        time.sleep(0.1)
    driver.get("about:blank")  # it would ask the server again
