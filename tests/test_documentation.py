"""The code and commands of every page run as written (with fewer epochs and shorter time-outs); the site is whole."""

import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import steadynet
from few_digits import load_few
from pages import ROOT, blocks, commands, page_text, run_page, write_files
from steadynet.cli import parse_command_line
from steadynet.data.digits import Digits

DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", "CONTRIBUTING.md", *DOCS]
WITH_CODE = [page for page in PAGES if any(block.is_run for block in blocks(page))]
FOLDERS = ("src", "tests", "checker")  # with the files that the map of the house names


@pytest.mark.parametrize("page", WITH_CODE)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.setattr(Digits, "load", load_few)
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_seen(page):
    assert len(blocks(page)) == len(re.findall(r"^```\w", page_text(page), re.MULTILINE))


def test_the_pages_that_teach_have_code_that_runs():
    taught = {page for page in DOCS if page.startswith("docs/how-to/")} - {"docs/how-to/cluster.md"}
    assert taught | {"README.md", "CONTRIBUTING.md", "docs/tutorial.md"} <= set(WITH_CODE)


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_not_run_have_flags_that_exist(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files(page)  # a method in a file has flags of its own
    for block in blocks(page):
        for line in commands(block.code) if block.language in ("bash", "console") else []:
            words = shlex.split(line, comments=True)
            if "steadynet" in words and "--version" not in words:
                assert parse_command_line(words[words.index("steadynet") + 1 :]).command


def test_every_make_target_of_the_readme_exists():
    shown = "\n".join(block.code for block in blocks("README.md") if block.language == "console")
    targets = re.findall(r"^make (\w+)", shown, re.MULTILINE)
    assert targets
    assert all(f"\n{target}:" in page_text("Makefile") for target in targets)


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page_text(page))
    of_the_site = {"docs/changelog.md", "docs/contributing.md"}  # made when it is built
    found = [((ROOT / page).parent / link).resolve() for link in links]
    assert all(path.is_file() or path.relative_to(ROOT).as_posix() in of_the_site for path in found), links


def test_the_map_of_the_house_is_right():
    text = page_text("CONTRIBUTING.md")
    files = [path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(named) > 30
    assert [name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in files)] == []
    table = text.partition("| room |")[2].partition("\n\n")[0]
    rooms = {name for line in table.splitlines()[2:] for name in re.findall(r"`([\w.]+)/?`", line.split("|")[1])}
    modules = [path for path in (ROOT / "src/steadynet").iterdir() if path.suffix == ".py" or [*path.glob("*.py")]]
    there = {path.name for path in modules if not path.name.startswith("_")}
    assert rooms == there


LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Sources(HTMLParser):
    """What a page makes a browser load, and how many equations it has."""

    def __init__(self, page):
        super().__init__()
        self.loaded, self.equations = [], 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if (source := dict(attrs).get(LOADS.get(tag, ""))) is not None:
            self.loaded.append(source)
        self.equations += tag == "math"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_has_every_page_and_loads_nothing_from_other_hosts(site):
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {page.removeprefix("docs/").replace(".md", ".html") for page in DOCS} <= pages
    assert {"changelog.html", "contributing.html"} <= pages
    for page in pages:
        loaded = Sources((site / page).read_text(encoding="utf-8")).loaded
        assert loaded
        assert not [source for source in loaded if re.match(r"(?i)\s*(https?:)?//", source)], page
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"url\(\s*[\"']?(https?:)?//", styles)


@pytest.mark.parametrize("name", steadynet.__all__)
def test_the_reference_shows_public_names(site, name):
    """Under the name that a user imports, once, and not under the module that happens to define it."""
    pages = [path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html")]
    assert len(pages) > 5
    assert sum(f'id="steadynet.{name}"' in page for page in pages) == 1
    hidden = f"{steadynet._DEFINED_IN[name]}.{name}"
    assert not any(re.search(rf'<h2 id="{re.escape(hidden)}"', page) for page in pages)


def test_equations_are_mathml(site):
    page = (site / "method.html").read_text(encoding="utf-8")
    assert Sources(page).equations >= 10
    assert "arithmatex" not in page


def test_the_reference_shows_defaults_help_and_examples(site):
    pages = [path.read_text(encoding="utf-8") for path in (site / "reference").glob("*.html")]
    text = re.sub(r"<[^>]+>", "", "\n".join(pages))
    assert "β, the weight of the consistency term" in text  # the help of a setting
    assert "setting(" not in text
    assert "&gt;&gt;&gt; import torch" in text  # a doctest, as code
