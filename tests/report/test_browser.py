"""The page in a real browser: what a reader can do, what a screen reader is told, what an attacker cannot do."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import demo
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from ranktuner.report import write

pytestmark = pytest.mark.browser

DRAWN = "return document.querySelectorAll('.plot:not([data-drawn])').length"
LOADED = "const t = performance.getEntriesByType('navigation')[0]; return t.loadEventEnd - t.startTime"
NOT_DRAWN = "return [...document.querySelectorAll('.plot:not([data-drawn=yes])')].map(p => p.id + ': ' + p.textContent)"


def wait(driver: Any, script: str, wanted: Callable[[Any], bool] = bool, seconds: float = 20) -> Any:
    """Run the script until its answer is wanted."""
    end = time.monotonic() + seconds
    while True:
        answer = driver.execute_script(script)
        if wanted(answer):
            return answer
        assert time.monotonic() < end, f"{script}: still {answer!r} after {seconds} s"
        time.sleep(0.03)


def show(driver: Any, path: Path) -> None:
    """Open a page afresh and wait until every plot was tried."""
    driver.get_log("performance")
    driver.get_log("browser")
    driver.get(path.as_uri())
    wait(driver, DRAWN, lambda left: left == 0)


@pytest.fixture
def opened(driver: Any, page: Path) -> Any:
    """The demo page; opened once, and put back to its start for each test."""
    if driver.current_url.split("#")[0] != page.as_uri():
        show(driver, page)
    driver.set_window_size(1280, 900)
    driver.execute_script("""
        document.querySelector('#theme input[value=auto]').click();
        document.querySelector('#signal input').click();
        const escape = new KeyboardEvent('keydown', {key: 'Escape', bubbles: true});
        document.querySelector('#token-texts').dispatchEvent(escape);
        const box = document.querySelector('#token-search'); box.value = ''; box.dispatchEvent(new Event('input'));
        for (const d of document.querySelectorAll('details')) d.open = false;
        document.activeElement.blur(); window.scrollTo(0, 0);
    """)
    return driver


def requests(driver: Any) -> list[str]:
    """Every URL that the browser asked for since `show`."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith(("data:", "blob:", "chrome:"))]


def test_it_opens_quickly_draws_everything_and_asks_nobody(driver: Any, page: Path) -> None:
    timings: list[float] = []
    # The best of three: the machine may be busy with other tests, the page is not slower for that.
    while not timings or (len(timings) < 3 and timings[-1] >= 2000):
        show(driver, page)
        timings.append(driver.execute_script(LOADED))
    assert min(timings) < 2000, f"opened in {timings} ms"
    assert driver.execute_script(NOT_DRAWN) == []
    assert driver.execute_script("return document.querySelectorAll('.plot svg').length") > 20
    assert driver.get_log("browser") == []
    assert requests(driver) == [page.as_uri()]
    assert page.stat().st_size < 4_000_000


@pytest.mark.parametrize(
    "script", ["fetch('https://example.org/x')", "new Function('return 1')()", "import('data:text/javascript,1')"]
)
def test_the_policy_forbids_requests_and_new_code(driver: Any, page: Path, script: str) -> None:
    show(driver, page)
    # From a timer: code that the driver itself evaluates is exempt from part of the policy.
    refused = driver.execute_async_script(f"""const done = arguments[0]; setTimeout(() => {{
        const refused = e => done(String(e));
        try {{ Promise.resolve({script}).then(() => done(null), refused) }} catch (e) {{ refused(e) }} }})""")
    assert refused is not None, f"{script} went through"
    driver.get_log("browser")


def colours(driver: Any) -> list[str]:
    return driver.execute_script(
        "return [...document.querySelectorAll('.t')].map(t => getComputedStyle(t).backgroundColor)"
    )


def test_every_signal_colours_the_text_in_its_own_way(opened: Any) -> None:
    seen = {}
    for radio in opened.find_elements(By.CSS_SELECTOR, "#signal input"):
        opened.execute_script("arguments[0].click()", radio)
        seen[radio.get_attribute("value")] = tuple(colours(opened))
    assert list(seen) == [
        "p",
        "entropy_bits",
        "rank",
        "expected_rank",
        "indicator",
        "w:sft",
        "w:dft",
        "w:ranktuner(prior=prob)",
    ]
    uniform = set(seen.pop("w:sft"))
    assert uniform == {"rgba(0, 0, 0, 0)"}, "one weight for all tokens must leave the text plain"
    assert len(set(seen.values())) == len(seen), "two signals look the same"
    assert all(len(set(one)) >= 4 for one in seen.values())


def test_the_colour_follows_the_number(opened: Any) -> None:
    """The reddest tokens are those with the smallest p; the legend's borders are where the colour changes."""
    data = opened.execute_script("return JSON.parse(document.getElementById('data-tokens').textContent)")
    stops = data["signals"][0]["stops"]
    bins = opened.execute_script(
        "return [...document.querySelectorAll('#token-row-0 .t')].map(t => Number(t.className.match(/b(\\d)/)[1]))"
    )
    expected = [len(stops) - sum(p >= stop for stop in stops) for p in data["rows"][0]["v"]["p"]]
    assert bins == expected
    assert len(set(bins)) >= 4


def card(driver: Any) -> dict[str, str]:
    terms = driver.find_elements(By.CSS_SELECTOR, "#token-card dt:not(.head)")
    values = driver.find_elements(By.CSS_SELECTOR, "#token-card dd")
    return {t.text: v.text for t, v in zip(terms, values, strict=True)}


def test_pointing_at_a_token_shows_all_its_signals(opened: Any, record: Any) -> None:
    node = opened.find_elements(By.CSS_SELECTOR, "#token-row-0 .t")[3]
    ActionChains(opened).scroll_to_element(node).move_to_element(node).perform()
    assert opened.find_element(By.CSS_SELECTOR, "#token-card .word").text == "8"
    assert node.text == "8"
    shown = card(opened)
    tokens = next(f for f in record["findings"] if f["kind"] == "tokens")["numbers"]["rows"][0]["tokens"]
    assert len(shown) == 12
    assert math.isclose(float(shown["probability p"]), tokens["p"][3], rel_tol=5e-3)
    assert math.isclose(float(shown["entropy H (bits)"]), tokens["entropy_bits"][3], rel_tol=5e-3)
    assert int(shown["rank R"]) == tokens["rank"][3]
    assert math.isclose(float(shown["dft"]), tokens["weights"]["dft"][3], rel_tol=5e-3)


def focus(driver: Any) -> Any:
    """The focused text, reached with the Tab key from the control before it."""
    driver.find_element(By.ID, "token-row").send_keys(Keys.TAB)
    texts = driver.switch_to.active_element
    assert texts.get_attribute("id") == "token-texts"
    return texts


def here(driver: Any) -> list[str]:
    return driver.execute_script(
        "return [...document.querySelectorAll('.t.on')].map(t => t.closest('.row').id + ' ' + t.textContent)"
    )


def test_the_keyboard_walks_through_the_tokens(opened: Any) -> None:
    texts = focus(opened)
    first = here(opened)
    assert first == ["token-row-0 Natalia"]
    texts.send_keys(Keys.ARROW_RIGHT)
    assert here(opened) == ["token-row-0  sold"]
    texts.send_keys(Keys.ARROW_LEFT)
    assert here(opened) == first
    texts.send_keys(Keys.ARROW_DOWN)
    assert here(opened) == ["token-row-0 Natalia"]
    below = opened.execute_script(
        "return [...document.querySelectorAll('.t')].findIndex(t => t.classList.contains('on'))"
    )
    assert below > 5, "down must reach the second line"
    texts.send_keys(Keys.ARROW_UP, Keys.END)
    assert here(opened) == ["token-row-0 ."]
    texts.send_keys(Keys.ARROW_RIGHT)
    assert here(opened) == ["token-row-1 She"]
    texts.send_keys(Keys.ESCAPE)
    assert here(opened) == []


def test_next_under_learned_goes_round_by_button_and_key(opened: Any, record: Any) -> None:
    rows = next(f for f in record["findings"] if f["kind"] == "tokens")["numbers"]["rows"]
    wanted = sum(len(row["under_learned"]) for row in rows)
    opened.execute_script("document.getElementById('next-under').click()")
    first = here(opened)
    assert first[0].startswith("token-row-0")
    assert "under-learned" in opened.find_element(By.CSS_SELECTOR, "#token-card .where").text
    texts = opened.find_element(By.ID, "token-texts")
    visited = {opened.execute_script("return document.querySelector('.t.on').dataset.u")}
    for _ in range(wanted - 1):
        texts.send_keys("n")
        visited.add(opened.execute_script("return document.querySelector('.t.on').dataset.u"))
    texts.send_keys("n")
    assert here(opened) == first, "after the last comes the first"
    marked = opened.execute_script("return [...document.querySelectorAll('.t.u')].map(t => t.dataset.u)")
    assert visited == set(marked)


def test_search_finds_across_tokens_and_enter_goes_on(opened: Any) -> None:
    box = opened.find_element(By.ID, "token-search")
    box.send_keys("SOLD 48")
    state = wait(opened, "return document.getElementById('token-search-state').textContent")
    assert state == "2 matches"
    found = opened.execute_script("return [...document.querySelectorAll('.t.found')].map(t => t.textContent)")
    assert found == [" sold", " 4", "8"] * 2
    box.send_keys(Keys.ENTER)
    assert here(opened) == ["token-row-0  sold"]
    assert wait(opened, "return document.getElementById('token-search-state').textContent") == "1 of 2"
    box.send_keys(Keys.CONTROL + "a" + Keys.NULL + "nowhere")
    wait(opened, "return document.getElementById('token-search-state').textContent", lambda text: text == "no match")


def test_characters_of_several_tokens_stay_whole(opened: Any) -> None:
    texts = opened.execute_script(
        "return [...document.querySelectorAll('.text')].map(t => [...t.querySelectorAll('.t')].map(s => s.textContent))"
    )
    emoji = next(one for one in texts if "Family" in one)
    assert "👨‍👩‍👧" in emoji
    assert "🇨🇭" in emoji
    assert "👍🏽" in emoji
    assert "❤️" in emoji
    assert "".join(emoji) == demo.TEXTS[2][2]
    right_to_left = next(one for one in texts if "Hello" in one)
    assert "".join(right_to_left) == demo.TEXTS[3][2]
    whole = next(node for node in opened.find_elements(By.CSS_SELECTOR, ".t") if node.text == "👨‍👩‍👧")
    assert "linear-gradient" in whole.value_of_css_property("background-image"), "each of its tokens has its own stripe"


def test_hostile_text_is_text(opened: Any) -> None:
    assert opened.execute_script("return window.pwned") is None
    assert opened.find_elements(By.CSS_SELECTOR, "main b:not(.about b), main img") == []
    shown = opened.execute_script("return document.querySelector('#token-texts').textContent")
    assert "<img src=x onerror=window.pwned=2> & <b>bold</b>␀␛[31m ⟨RLO⟩evil⟨PDF⟩ � end" in shown
    assert "</script><script>window.pwned=1</script>" in shown


def test_light_and_dark_are_different_and_readable(opened: Any) -> None:
    seen = {}
    for theme in ("light", "dark"):
        opened.execute_script(f"document.querySelector('#theme input[value={theme}]').click()")
        seen[theme] = opened.execute_script("""
            const of = (q, p) => getComputedStyle(document.querySelector(q))[p];
            return [of('body', 'backgroundColor'), of('body', 'color'), of('.plot .role-axis-label text', 'fill')]""")
    assert all(a != b for a, b in zip(seen["light"], seen["dark"], strict=True)), seen


def test_a_phone_needs_no_sideways_scrolling(opened: Any) -> None:
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        width = wait(opened, "return document.documentElement.scrollWidth", lambda w: w <= 360, seconds=3)
        assert width <= 360
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_violation(opened: Any, axe: str, theme: str) -> None:
    opened.execute_script(f"document.querySelector('#theme input[value={theme}]').click()")
    opened.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    focus(opened)
    # The page's own policy would refuse the script; the driver injects it past the policy.
    opened.execute_script(axe)
    found = opened.execute_async_script(
        "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(r => done(r.violations), e => "
        "done([{id: String(e), impact: 'critical', nodes: []}]))"
    )
    serious = {
        v["id"]: [n["html"][:160] for n in v["nodes"][:3]] for v in found if v["impact"] in ("serious", "critical")
    }
    assert serious == {}


def test_thousands_of_tokens_stay_smooth(driver: Any, tmp_path: Path) -> None:
    demo.tokens(repeat=40).save(tmp_path / "tokens.json")
    write([tmp_path / "tokens.json"], tmp_path / "many.html")
    show(driver, tmp_path / "many.html")
    count = driver.execute_script("return document.querySelectorAll('.t').length")
    assert count > 8000
    # The best of three rounds, for the same reason as above.
    rounds = [driver.execute_script(SMOOTH) for _ in range(3)]
    assert min(one["switch"] for one in rounds) < 150, rounds
    assert min(one["key"] for one in rounds) < 60, rounds


SMOOTH = """
        const worst = {};
        const measure = (name, action) => {
            const start = performance.now(); action(); void document.body.offsetHeight;
            worst[name] = Math.max(worst[name] || 0, performance.now() - start);
        };
        for (const radio of document.querySelectorAll('#signal input')) measure('switch', () => radio.click());
        const texts = document.getElementById('token-texts');
        const press = key => texts.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        for (const key of ['n', 'ArrowRight', 'ArrowDown', 'n']) measure('key', () => press(key));
        return worst"""


NUMERAL = re.compile(r"\d(?:[\d.,]*\d)?")
OWN_PROSE = {"1", "2", "3", "95"}
"""Numerals of the page's own fixed sentences: pass@1, 1/R, H ≥ 2 bits, f(1), 95 % interval."""

READ_NUMBERS = """
    for (const d of document.querySelectorAll('details')) d.open = true;
    return [...document.querySelectorAll('body data')].map(d => [d.getAttribute('value'), d.textContent]);
"""
READ_REST = """
    const copy = document.body.cloneNode(true);
    const quoted = 'data, script, .plot, .texts, #token-card, select, output, .prompt, .suspect, pre, .line';
    for (const node of copy.querySelectorAll(quoted)) node.remove();
    for (const node of copy.querySelectorAll('*')) node.append(' ');
    return copy.textContent;
"""


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for key, value in tree.items() for leaf in [key, *leaves(value)]]
    return [leaf for value in tree for leaf in leaves(value)] if isinstance(tree, list) else [tree]


def six(value: float) -> float:
    return float(f"{value:.6g}")


def test_every_number_on_the_page_is_in_the_json(opened: Any, record: Any) -> None:
    every = leaves(record)
    known = {six(leaf) for leaf in every if isinstance(leaf, int | float) and not isinstance(leaf, bool)}
    shown = opened.execute_script(READ_NUMBERS)
    assert len(shown) > 300
    for value, text in shown:
        number = float(value)
        assert six(number) in known, f"{text} ({value}) is on the page and not in the JSON"
        plain = text.replace(",", "").replace("\u2212", "-")
        written = float(plain.removesuffix("%").strip().removesuffix("\u202f"))
        assert any(
            math.isclose(
                written, number * scale, rel_tol=0.0051, abs_tol=0.051 if scale == 100 else 0.51 * ("." not in plain)
            )
            for scale in ((100,) if plain.endswith("%") else (1, 100))
        ), f"{text} is not a rounding of {value}"
    strings = {numeral for leaf in every if isinstance(leaf, str) for numeral in NUMERAL.findall(leaf)}
    strings |= {numeral for leaf in every if isinstance(leaf, int | float) for numeral in NUMERAL.findall(str(leaf))}
    rest = set(NUMERAL.findall(opened.execute_script(READ_REST)))
    assert rest - strings - OWN_PROSE == set()


def test_the_card_of_any_token_shows_numbers_of_the_json(opened: Any, record: Any) -> None:
    known = {six(leaf) for leaf in leaves(record) if isinstance(leaf, int | float) and not isinstance(leaf, bool)}
    texts = focus(opened)
    for _ in range(5):
        texts.send_keys(Keys.ARROW_RIGHT * 7)
        values = opened.execute_script(
            "return [...document.querySelectorAll('#token-card data')].map(d => Number(d.value))"
        )
        assert len(values) == 13
        assert {six(value) for value in values} <= known


def fill(driver: Any, box: Any, text: str) -> None:
    """Put a text into a search box at once: one search, not one for each key that a busy machine sees late."""
    driver.execute_script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", box, text
    )


def verdicts(driver: Any) -> list[str]:
    return [node.text for node in driver.find_elements(By.CSS_SELECTOR, "#sample-list .verdict")]


def test_samples_can_be_filtered_searched_and_read(opened: Any) -> None:
    choices = {r.get_attribute("value"): r for r in opened.find_elements(By.CSS_SELECTOR, "#sample-verdicts input")}
    assert list(choices) == ["", "correct", "wrong", "unparsed", "truncated"]
    assert len(verdicts(opened)) == 25
    opened.execute_script("document.getElementById('sample-more').click()")
    assert len(verdicts(opened)) == 50
    opened.execute_script("arguments[0].click()", choices["wrong"])
    assert set(verdicts(opened)) == {"wrong"}
    select = opened.find_element(By.CSS_SELECTOR, "#sample-groups select")
    select.send_keys("sft")
    assert all("sft" in node.text for node in opened.find_elements(By.CSS_SELECTOR, "#sample-list .id"))
    box = opened.find_element(By.ID, "sample-search")
    opened.execute_script("document.getElementById('sample-list').firstChild.dataset.before = 'yes'")
    fill(opened, box, "let me <B>think")
    wait(opened, "return document.querySelector('#sample-list details') && !document.querySelector('[data-before]')")
    first = opened.find_element(By.CSS_SELECTOR, "#sample-list details")
    first.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    body = wait(opened, "const b = document.querySelector('#sample-list .sample-body'); return b && b.textContent")
    for part in (
        "What is 6 * 7?",
        "& <i>others</i>",
        "</script><script>window.pwned=3</script>",
        "Expected42",
        "41 is not 42",
    ):
        assert part in body
    fill(opened, box, "no such words")
    wait(opened, "return document.getElementById('sample-count').textContent", lambda text: text == "0 samples")
    assert opened.execute_script("return window.pwned") is None
    fill(opened, box, "")
    select.send_keys("all")
    opened.execute_script("arguments[0].click()", choices[""])


def test_print_opens_the_tables_and_hides_the_controls(opened: Any) -> None:
    pdf = opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"]
    assert len(pdf) > 100_000
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        hidden = opened.execute_script("""
            dispatchEvent(new Event('beforeprint'));
            const hidden = q => getComputedStyle(document.querySelector(q)).display === 'none';
            const state = [hidden('.contents'), hidden('.tools'), hidden('#token-card'),
                           !document.querySelector('details.numbers:not([open])'),
                           getComputedStyle(document.querySelector('.texts')).overflowY];
            dispatchEvent(new Event('afterprint'));
            return [...state, document.querySelectorAll('details.numbers[open]').length]""")
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert hidden == [True, True, True, True, "visible", 0]
