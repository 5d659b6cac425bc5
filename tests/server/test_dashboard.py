"""The dashboard in a real browser."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from support.waiting import HANG_S, StepGate

PATH = "/dashboard/"
TEXT = "/v1/completions"
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no Chromium here: install Debian's package chromium, or its like")
    expect.set_options(timeout=1e3 * HANG_S)
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open the page; at the end, nothing may have failed, nor been asked of another server."""
    contexts, troubles, hosts = [], [], set()

    def visit(server: Any, path: str = PATH, **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(1e3 * HANG_S)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.goto(f"http://{server.host}:{server.port}{path}")
        hosts.discard(f"{server.host}:{server.port}")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not troubles
    assert len(hosts) <= 1


def live(page: Page) -> None:
    expect(page.locator("#connection")).to_have_text("live")


def tile(page: Page, name: str) -> Any:
    return page.locator("#tiles > div", has=page.get_by_text(name, exact=True)).locator("dd").first


def test_only_the_page_is_open(launch):
    server = launch(api_key=["secret"])
    assert server.get("/dashboard").headers["location"].endswith(PATH)
    page = server.get(PATH)
    assert page.status == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    again = server.send("GET", PATH, headers={"If-None-Match": page.headers["etag"]})
    assert again.status == 304
    assert server.get("/dashboard/chart.js").headers["content-type"].startswith("text/javascript")
    for path in ("__init__.py", "../__init__.py", "%2e%2e/__init__.py", "..%2f..%2fapp.py"):
        assert server.get(PATH + path).status == 404
    for path in ("/dashboard/../v1/stats", "/dashboard/%2e%2e/v1/requests", "/dashboardx"):
        assert server.get(path).status in (401, 404)
    assert server.get("/v1/requests").status == 401


def test_it_begins_empty_and_follows_what_happens(launch, visit):
    server = launch()
    page = visit(server)
    live(page)
    expect(page.locator("#no-requests")).to_be_visible()
    expect(tile(page, "TTFT p50")).to_have_text("–")
    expect(page.locator("#ttft figcaption time")).to_have_text("no requests in this window")

    assert server.post(TEXT, {"prompt": "say:abc", "stream": True}).status == 200
    expect(page.locator("#requests tr")).to_have_count(1)
    expect(page.locator("#no-requests")).to_be_hidden()
    expect(tile(page, "TTFT p50")).to_contain_text("ms")
    expect(tile(page, "Requests")).to_have_text("1")
    late = {"prompt": "x" * 4000, "ttft_slo_ms": 0.01}
    assert server.post(TEXT, late).status == 429
    expect(page.get_by_text("0 failed, 0 aborted, 1 refused")).to_be_visible()
    expect(page.get_by_text(re.compile(r"predicted ± [\d.]+ %"))).to_be_visible()
    expect(page.locator("#parts rect").nth(1)).to_be_attached()


def test_a_row_opens_its_waterfall_by_mouse_key_and_address(server, visit):
    answer = server.post(TEXT, {"prompt": "say:abc"}).json()
    page = visit(server)
    dialog = page.locator("#waterfall")
    page.locator("#requests tr").first.click()
    expect(dialog.locator(".timeline li .name").first).to_have_text("read")
    expect(page.locator("#waterfall-heading")).to_have_text(answer["id"])
    names = dialog.locator(".timeline .name").all_text_contents()
    assert {"parse", "prefill", "write"} <= set(names)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()

    page.locator("#requests button").first.focus()
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()

    other = visit(server, f"{PATH}#{answer['id']}")
    expect(other.locator("#waterfall .timeline li").first).to_be_visible()
    lost = visit(server, f"{PATH}#{HOSTILE}")
    expect(lost.locator("#waterfall .error")).to_contain_text("no request")


def test_the_playground_times_itself_beside_the_server(server, visit):
    page = visit(server)
    page.get_by_role("textbox", name="Message", exact=True).fill("say:the sky is blue")
    page.get_by_role("button", name="Send").click()
    answer = page.locator("#chat .assistant")
    expect(answer.locator(".text")).to_have_text("the sky is blue")
    account = answer.locator(".hint")
    expect(account).to_contain_text("at the server")
    here, there = re.findall(r"([\d.]+) ms (?:here|at the server)", account.inner_text())
    assert float(here) >= float(there) > 0
    account.get_by_role("button", name="waterfall").click()
    expect(page.locator("#waterfall .timeline li").first).to_be_visible()


def test_an_answer_can_be_stopped(launch, visit):
    gate = StepGate(4)
    server = launch(on_step=gate)
    page = visit(server)
    page.get_by_role("textbox", name="Message", exact=True).fill("the alphabet")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#chat .assistant .text")).to_contain_text("abc")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#chat .assistant")).to_contain_text("stopped")
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    gate.open()
    server.wait_for(lambda: server.idle)


def test_script_in_prompts_answers_and_names_stays_text(launch, visit):
    server = launch(served_model_name=[HOSTILE])
    page = visit(server)
    live(page)
    page.get_by_role("textbox", name="Message", exact=True).fill(f"say:{HOSTILE}")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#chat .assistant .text")).to_have_text(HOSTILE)
    expect(page.locator("#chat .user .text")).to_have_text(f"say:{HOSTILE}")
    expect(page.locator("#server")).to_contain_text(HOSTILE)
    page.locator("#chat .hint button").click()
    expect(page.locator("#waterfall .timeline li").first).to_be_visible()
    assert page.locator("img, #chat script, #server script").count() == 0
    assert page.title() == "foreword"


def test_the_policy_stops_what_would_run_all_the_same(server, visit):
    page = visit(server)
    live(page)
    refused = page.evaluate(
        """async () => {
            const script = document.createElement("script");
            script.textContent = "document.title = 'run'";
            document.body.append(script);
            const outside = fetch("http://127.0.0.2:9/").then(() => false, () => true);
            return [document.title, await outside];
        }"""
    )
    assert refused == ["foreword", True]
    assert page.locator("script[src]").count() == 1


def test_it_asks_for_the_key_and_keeps_it_in_the_tab(launch, visit):
    server = launch(api_key=["secret"])
    assert server.get("/dashboard/app.js").status == 200
    page = visit(server)
    key = page.get_by_label("Key", exact=True)
    key.fill("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#key-reason")).to_contain_text("does not take this key")
    key.fill("secret")
    page.keyboard.press("Enter")
    live(page)
    assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [
        1,
        0,
        "",
    ]
    page.reload()
    live(page)


def test_many_requests_come_in_pages(launch, visit):
    server = launch()
    body = {"prompt": "say:a", "max_tokens": 1}
    ids = [server.post(TEXT, body).json()["id"] for _ in range(120)][::-1]
    page = visit(server)
    shown = page.locator("#requests tr")
    expect(shown).to_have_count(50)

    def turned(to: int) -> None:
        expect(shown.first).to_have_attribute("data-id", ids[to])

    turned(0)
    page.get_by_role("button", name="Older").click()
    turned(50)
    page.get_by_role("button", name="Older").click()
    turned(100)
    expect(shown).to_have_count(20)
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    page.get_by_role("button", name="Newer").click()
    turned(50)
    page.get_by_role("button", name="Newest").click()
    turned(0)
    expect(page.get_by_role("button", name="Newer")).to_be_disabled()


def test_it_outlives_the_server(launch, visit):
    first = launch()
    first.post(TEXT, {"prompt": "say:a"})
    page = visit(first)
    expect(page.locator("#requests tr")).to_have_count(1)
    first.stop()
    first.join()
    expect(page.locator("#connection")).to_contain_text("cannot reach the server")
    launch(port=first.port)
    live(page)
    expect(page.locator("#no-requests")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(server, visit, scheme):
    server.post(TEXT, {"prompt": "say:abc"})
    page = visit(server, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page.locator("#requests tr").first.click()
    expect(page.locator("#waterfall .timeline li").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.getElementById('waterfall').scrollWidth") <= 360
    colours = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    text, back = (sum(map(int, c[4:-1].split(", "))) for c in colours)
    assert (text < back) == (scheme == "light")
