"""How the page looks in a real browser: what comes first, what is folded, and whether everybody can read it."""

from __future__ import annotations

import pytest

from browsing import UNFOLD, choose, texts
from reports import resize


def test_the_page_begins_with_its_result_and_three_examples(opened):
    order = "return [...document.querySelectorAll('h1, #examples, .chart, .tableview, .fold, #gallery')]"
    places = opened.execute_script(
        f"{order}.filter((element) => element.offsetParent).map((element) => element.tagName)"
    )
    assert texts(opened, "h1") == ["1,666 of 2,500 proof attempts succeeded with NBC, 1,666 without"]
    assert places[:2] == ["H1", "SECTION"]
    assert places[-1] == "SECTION"
    assert len(texts(opened, ".example h3")) == 3
    assert all("is read as" in title for title in texts(opened, ".example h3"))
    pictures = "return [...document.querySelectorAll('.example')].map((one) => one.querySelectorAll('canvas').length)"
    assert opened.execute_script(pictures) == [3, 3, 3]
    widths = opened.execute_script(
        "return [...document.querySelectorAll('.example canvas')].map((one) => one.clientWidth)"
    )
    assert min(widths) >= 100
    verdicts, table, first_fold = (
        opened.execute_script(f"return document.querySelector('{one}').getBoundingClientRect().top")
        for one in ("[data-chart$=verdicts]", ".tableview", ".fold")
    )
    assert verdicts < table < first_fold


def test_details_are_folded_and_no_claim_is_shown(opened):
    assert (
        opened.execute_script("return [...document.querySelectorAll('details')].filter((one) => one.open).length") == 0
    )
    assert texts(opened, ".claim") == []


def test_the_gallery_opens_on_an_image_that_a_change_fools_the_network_on(opened):
    first = "document.querySelector('.card')"
    assert opened.execute_script(f"return {first}.querySelectorAll('canvas').length") == 3
    assert opened.execute_script(f"return {first}.querySelector('.badge').textContent") == "refuted"
    blank = "return [...document.querySelectorAll('.pictures')].filter((one) => {"
    blank += " const drawn = one.querySelectorAll('canvas');"
    blank += (
        "if (drawn.length < 3) return false; const data = drawn[2].getContext('2d').getImageData(0, 0, 28, 28).data;"
    )
    blank += "return data.every((value) => value === 255) }).length"
    choose(opened, "#gallery", "order", "verified")
    assert opened.execute_script(blank) == 0
    misread = "return [...document.querySelectorAll('.card')].filter((one) => one.innerText.startsWith('image 0'))"
    assert opened.execute_script(f"{misread}.map((one) => one.querySelectorAll('canvas').length)[0]") == 1


def test_tables_speak_plainly_and_say_what_the_paper_says(opened):
    proved = "[...document.querySelectorAll('.tableview th')].find((head) => head.innerText.startsWith('Proved'))"
    assert opened.execute_script(f"return {proved}.title") == "UNSAT %: properties that are proved"
    assert "UNSAT" not in " ".join(texts(opened, ".tableview table"))
    assert opened.execute_script("return document.querySelector('.card .badge').title") == "SAT"


def test_at_400_pixels_the_rows_of_a_table_are_cards(opened):
    resize(opened, 400)
    try:
        cell = "document.querySelector('.tableview tbody td:nth-child(4)')"
        assert (
            opened.execute_script("return getComputedStyle(document.querySelector('.tableview tr:last-child')).display")
            == "block"
        )
        name = opened.execute_script(f"return getComputedStyle({cell}, '::before').content")
        assert name == '"Proved %"'
        assert opened.execute_script("return document.querySelector('.scroll').scrollWidth") <= 400 - 24
        choose(opened, ".tableview", "order", "2")
        assert texts(opened, ".tableview tbody td:nth-child(3)") == ["0.1", "0.1", "0.2", "0.2"]
    finally:
        resize(opened)


def test_pictures_and_figures_are_described(opened):
    opened.execute_script(UNFOLD)
    alts = "return [...document.querySelectorAll('canvas, .plot')].map((one) => one.getAttribute('aria-label') || '')"
    assert all(opened.execute_script(alts))
    (alt, *_) = opened.execute_script(
        "return [...document.querySelectorAll('[data-chart$=verdicts] .plot')].map((one) => one.ariaLabel)"
    )
    assert "natural, ε 0.1: 833 of 1250 proved" in alt


CONTRAST = """
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (colour) => colour.slice(0, 3).map((part) => part / 255)
  .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
const behind = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const colour = parse(getComputedStyle(one).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const texts = 'h1, h2, h3, p, td, th, dt, dd, label, a, summary, .badge, figcaption';
return Math.min(...[...document.querySelectorAll(texts)]
  .map((element) => [light(parse(getComputedStyle(element).color)), light(behind(element))])
  .map(([one, other]) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)));
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_can_be_read_in_both_themes(opened, theme):
    def prefer(theme):
        features = [{"name": "prefers-color-scheme", "value": theme}]
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    prefer(theme)
    try:
        dark = opened.execute_script("return getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark == (theme == "dark")
        assert opened.execute_script(CONTRAST) >= 4.5  # as WCAG 2 asks, level AA
    finally:
        prefer("light")


def test_the_keyboard_reaches_a_cell_and_opens_it(opened):
    opened.execute_script("document.querySelector('button.cell').focus()")
    opened.switch_to.active_element.send_keys("\n")
    assert texts(opened, "#count")[0].startswith("1,250 of 5,000 properties")


@pytest.mark.parametrize("width", [1280, 400])
def test_no_row_of_figures_is_mostly_empty(opened, width):
    resize(opened, width)
    try:
        opened.execute_script(UNFOLD)
        shares = opened.execute_script(
            "return [...document.querySelectorAll('.charts, section > .chart')].flatMap((group) => {"
            " const rows = {}; const whole = group.getBoundingClientRect().width;"
            " for (const panel of group.querySelectorAll('.panel')) {"
            "  const box = panel.getBoundingClientRect(); const row = Math.round(box.bottom / 20);"
            "  rows[row] = (rows[row] || 0) + box.width / whole; }"
            " return Object.values(rows) })"
        )
        assert min(shares) > 0.45
    finally:
        resize(opened)
