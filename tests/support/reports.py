"""Tables with known numbers, folders to report on, and a real browser, where there is one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from steadynet.experiments.paper_numbers import paper_numbers
from steadynet.experiments.table import TableRow
from steadynet.experiments.variants import Variant
from steadynet.graph.rounding import Arithmetic
from steadynet.report.records import Experiment
from steadynet.runs.directory import RunDirectory
from steadynet.runs.metrics import EpochMetrics
from steadynet.verification.properties import Guarantee, Verdict
from steadynet.verification.verdicts import Row, VerdictFile

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
NO_BROWSER = "no browser: apt-get install chromium chromium-driver (as .ci/run does) to test the page in one"


def row(method, metric, value, eps=0.1, **more):
    """A number of M1; 1,000 properties unless said otherwise."""
    place = ("made-up", "mnist", "M1", Variant.plain(method), 0, metric, eps)
    return replace(TableRow(*place, value, denominator=1000, run="runs/key"), **more)


def experiment(rows, name="made-up", title="Made up", facts=None):
    return Experiment(name, title, rows, [], facts or {"scale": "paper", "seeds": "0"})


def of_the_paper(name, change=lambda row: row, tasks=1000):
    """An experiment that found what the paper did, but for a change."""
    rows = [
        TableRow(name, "data", of.model, of.variant, 0, of.metric, of.eps, of.value, None, tasks, of.value, "runs/key")
        for of in paper_numbers(name)
    ]
    base = [replace(row, metric=row.metric.removesuffix("_delta"), value=1.0) for row in rows if "_delta" in row.metric]
    return experiment([change(row) for row in rows] + base, name, name)


def verdict(index, eps=0.1, verdict=Verdict.UNSAT, **more):
    """A decided property."""
    base = Row(eps, index, index % 4, verdict, 0.5, 1.0, 0.9, "crown", 1, "crown", "", "", "v", 2.0, "", "digits",
               Arithmetic.FLOAT32, Guarantee.CHECKED, "t")  # fmt: skip
    return replace(base, **more)


def write_run(folder: Path, rows, method="nbc", data="digits", model="M1", seed=0, more="") -> Path:
    """A run directory without a network: what is on record of one."""
    run = RunDirectory(folder)
    folder.mkdir(parents=True)
    facts = f"data = {json.dumps(data)}\nmodel = {json.dumps(model)}\nmethod = {json.dumps(method)}\n"
    run.config.write_text(
        f"{facts}eps = 0.1\nseed = {seed}\n{more}\n[input]\nimage_shape = [1, 28, 28]\nclasses = 10\n"
    )
    run.add_metrics(EpochMetrics(1, method, 0.1, 1e-3, 2.0, {"cross_entropy": 1.0}, 0.5, 0.4))
    VerdictFile(run).update(lambda _: rows)
    return folder


def browser():
    """A browser without a screen; it fetches nothing by itself, not even its driver."""
    if not CHROMIUM or not DRIVER:
        pytest.skip(NO_BROWSER)
    webdriver = pytest.importorskip("selenium.webdriver", reason=NO_BROWSER)
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    resize(driver)
    return driver


def resize(driver, width=1280, height=900):
    """Give the browser's window a size in pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def requested(driver):
    """The addresses that pages asked for since last asked."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    addresses = [entry["request"]["url"] for entry in sent]
    return [address for address in addresses if not address.startswith(("data:", "blob:"))]
