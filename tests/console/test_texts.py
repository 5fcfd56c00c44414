"""Texts, Markdown, times and numbers, as a real Chromium shows them."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from .browser import Windows

pytestmark = pytest.mark.asyncio(loop_scope="session")
BIG = 1_000_000
# Draws what `code` makes of `text`, and returns the number of elements and the HTML.
DRAW = """
async ([module, code, text]) => {
  const link = Object.assign(document.createElement("link"), {rel: "modulepreload"});
  link.nonce = document.querySelector("script").nonce;
  link.href = `/console/static/${module}.js`;
  await new Promise((done) => { link.onload = done; document.head.append(link); });
  const {render} = await import("preact");
  const {html} = await import("/console/static/html.js");
  const made = await import(`/console/static/${module}.js`);
  document.querySelector("#scene")?.remove();
  const scene = document.createElement("div");
  scene.id = "scene";
  document.body.append(scene);
  const vnode = module === "markdown" ? made.markdown(text) : html`<${made[code]} ...${text} />`;
  render(vnode, scene);
  return scene.innerHTML.length < 100000 ? scene.innerHTML : "";
}
"""


async def draw(page: Page, module: str, value: Any, code: str = "") -> str:
    made: str = await page.evaluate(DRAW, [module, code, value])
    return made


async def markdown(page: Page, text: str) -> str:
    made = await draw(page, "markdown", text)
    return made.partition(">")[2].removesuffix("</div>")


@pytest_asyncio.fixture(loop_scope="session")
async def page(windows: Windows) -> Page:
    windows.expect("401")  # nobody is logged in
    page = await windows.open()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()  # it asks no more
    return page


SAFE = 'rel="noopener noreferrer" target="_blank"'
SAMPLES = {
    "one\ntwo": "<p>one\ntwo</p>",
    "# One #2": '<p class="heading h1">One #2</p>',
    "a *b* **c** ***d*** ~~e~~ __f__": "<p>a <em>b</em> <strong>c</strong> <strong><em>d</em>"
    "</strong> <del>e</del> <strong>f</strong></p>",
    "**a *b***": "<p><strong>a <em>b</em></strong></p>",
    "snake_case_name 2 * 3 * 4 ****": "<p>snake_case_name 2 * 3 * 4 ****</p>",
    "*a **b* c": "<p><em>a **b</em> c</p>",
    "a\\*b\\* \\q": "<p>a*b* \\q</p>",
    "`a*b*` ``c`d``": "<p><code>a*b*</code> <code>c`d</code></p>",
    "a  \nb\\\nc<br>d": "<p>a  <br>b<br>c<br>d</p>",
    "- a\n- b\n  - c\n\n1. d\n2. e": "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>"
    '<ol start="1"><li>d</li><li>e</li></ol>',
    "- [ ] a\n- [x] b": "<ul><li>☐ a</li><li>☑ b</li></ul>",
    "7. a\n   \n   b": '<ol start="7"><li>a<p>b</p></li></ol>',
    "> a\n> > b": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>",
    "a\n\n---\nb": "<p>a</p><hr><p>b</p>",
    "|a|b|\n|:-:|--:|\n|1|`2\\|3`|9|": '<div class="scroll" tabindex="0"><table><thead><tr>'
    '<th class="center">a</th><th class="right">b</th></tr></thead><tbody><tr>'
    '<td class="center">1</td><td class="right"><code>2|3</code></td></tr></tbody></table></div>',
    "[a](https://b.example/c)": f'<p><a href="https://b.example/c" {SAFE} '
    'title="https://b.example/c">a</a><span class="target"> (b.example)</span></p>',
    "<mailto:ann@b.example>": f'<p><a href="mailto:ann@b.example" {SAFE} '
    'title="mailto:ann@b.example">mailto:ann@b.example</a></p>',
    "see https://b.example/c.": f'<p>see <a href="https://b.example/c" {SAFE} '
    'title="https://b.example/c">https://b.example/c</a>.</p>',
}


async def test_markdown_is_drawn(page: Page) -> None:
    assert {text: await markdown(page, text) for text in SAMPLES} == SAMPLES


async def test_fenced_code_can_be_copied(page: Page) -> None:
    await markdown(page, "```python\nprint('<b>')\n```")
    scene = page.locator("#scene")
    await expect(scene.locator("pre code")).to_have_text("print('<b>')")
    await expect(scene.locator(".bar span").first).to_have_text("python")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await scene.get_by_role("button", name="Copy").click()
    await expect(scene.get_by_text("Copied")).to_be_visible()
    assert await page.evaluate("navigator.clipboard.readText()") == "print('<b>')"


HOSTILE = (
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "<a href='javascript:window.ran=1'>x</a>",
    "[x](javascript:window.ran=1)",
    "[x](java\nscript:window.ran=1)",
    "[x]( JaVaScRiPt:window.ran=1)",
    "[x](data:text/html,<script>window.ran=1</script>)",
    "[x](vbscript:x) [y](file:///etc/passwd) [z](//evil.example) [w](/v1/sessions) [v](blob:x)",
    "<javascript:window.ran=1>",
    '[x](https://a.example/"onmouseover="window.ran=1)',
    "![x](https://tracker.example/pixel.png)",
    "[![x](https://tracker.example/pixel.png)](javascript:window.ran=1)",
    "| <script>window.ran=1</script> |\n|---|\n| <iframe src=javascript:window.ran=1> |",
    "```<script>\nwindow.ran=1</script>\n```",
    "`</code><script>window.ran=1</script>`",
    "# <svg onload=window.ran=1>",
)


async def test_nothing_in_markdown_runs_or_loads(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for text in HOSTILE:
        await draw(page, "markdown", text)
        await check_harmless(page)
    assert not [url for url in asked if "static" not in url]


async def check_harmless(page: Page) -> None:
    scene = page.locator("#scene")
    assert await scene.locator("script, img, iframe, svg, object, style, form, input").count() == 0
    for link in await scene.locator("a").all():
        href = await link.get_attribute("href") or ""
        assert href.startswith(("https://", "http://", "mailto:"))
        assert await link.get_attribute("rel") == "noopener noreferrer"
        await link.dispatch_event("mouseover")
    handlers = (
        "[...document.querySelectorAll('#scene *')].flatMap((one) => one.getAttributeNames())"
    )
    assert not [name for name in await page.evaluate(handlers) if name.startswith("on")]
    assert await page.evaluate("window.ran") is None


async def test_the_target_of_a_link_is_visible(page: Page) -> None:
    await draw(
        page,
        "markdown",
        "[https://bank.example](https://evil.example/) https://bank.example@evil.example/",
    )
    await expect(page.locator("#scene .target")).to_have_text([" (evil.example)"] * 2)


async def test_images_are_links(page: Page) -> None:
    await draw(page, "markdown", "![a *chart*](https://a.example/x.png)")
    await expect(page.locator("#scene a")).to_have_text("Image: a chart")


LINES = {
    "letters": "a",
    "emphasis": "*a ",
    "emphasis that closes": "*a* ",
    "both": "a*b_c**",
    "brackets": "[",
    "closed brackets": "[](",
    "pairs": "[a](b",
    "addresses": "http://%%",
    "angles": "<http://",
    "backticks": "`a``b",
    "tilde": "~",
    "escapes": "\\|",
    "bars": "|",
    "quotes": ">",
    "deep quotes": "> ",
    "rules": "- ",
    "spaces": " ",
    "hashes": "#",
    "bidi": "\u202ea",
    "newlines": "a\n\n",
    "items": "- a\n",
    "numbers": "1. a\n",
    "tables": "|a|\n|-|\n",
    "fences": "```\n",
    "quoted items": "> - a\n",
}


async def test_a_megabyte_of_anything_is_drawn(page: Page) -> None:
    """A renderer that is not linear does not end here within the time of a test."""
    for unit in LINES.values():
        await draw(page, "markdown", unit * (BIG // len(unit)))
        assert await page.locator("#scene .more").count() == 1
    await page.evaluate("document.querySelector('#scene .more').click()")
    await expect(page.locator("#scene .more")).to_contain_text("Show 50,000 more of 929,996")


async def test_deep_nesting_is_drawn(page: Page) -> None:
    nested = "\n".join(f"{'  ' * depth}- {depth}" for depth in range(200))
    for text in (
        nested,
        "> " * 5_000 + "x",
        "**a *b " * 2_000 + "* c** " * 2_000,
        "[" * 9_000 + "](" * 999,
    ):
        await draw(page, "markdown", text)
        assert await page.evaluate("document.querySelector('#scene').textContent.length") > 100


async def test_hidden_characters_are_visible(page: Page) -> None:
    for module, code in (("text", "Text"), ("markdown", "")):
        text = "pay\u202e100\u2066\u200b\U000e0041\x07 euro"
        await draw(page, module, {"value": text} if code else text, code)
        shown = "pay⟨U+202E⟩100⟨U+2066⟩⟨U+200B⟩⟨U+E0041⟩⟨U+0007⟩ euro"
        await expect(page.locator("#scene")).to_have_text(shown)


async def test_a_long_text_is_cut(page: Page) -> None:
    await draw(page, "text", {"value": "x" * 99 + "😀" + "y" * 100, "limit": 100}, "Text")
    await expect(page.locator("#scene")).to_contain_text("x… Show all (101 more characters)")
    await page.get_by_role("button", name="Show all").click()
    await expect(page.locator("#scene")).to_have_text("x" * 99 + "😀" + "y" * 100)
    await draw(page, "text", {"value": "x" * BIG}, "Text")
    await page.get_by_role("button", name="Show 50,000 more of 996,000 characters").click()
    await expect(page.get_by_role("button", name="Show 50,000 more of 946,000")).to_be_visible()


async def test_a_value_is_shown_as_json(page: Page) -> None:
    await draw(page, "text", {"value": {"a": "<b>"}}, "Text")
    await expect(page.locator("#scene")).to_have_text('{\n  "a": "<b>"\n}')


FORMATS = """
async () => {
  const {duration, count, cost, time} = await import("/console/static/format.js");
  return [
    ...[0, 340, 2340, 42000, 192000, 7500000, 273600000, null, -500].map(duration),
    ...[1234567, 0, null].map(count),
    ...[0, 1.5, 0.0123, 0.00001, null].map(cost),
    time(null), time(NaN), time(Date.UTC(2020, 0, 2)),
  ];
}
"""


async def test_times_and_numbers_are_short(windows: Windows) -> None:
    windows.expect("401")
    page = await windows.open(locale="en-US", timezone_id="Europe/Berlin")
    await draw(page, "format", {"at": 1577923200123}, "Time")
    assert await page.evaluate(FORMATS) == [
        *("0 ms", "340 ms", "2.3 s", "42 s", "3 min 12 s", "2 h 5 min", "3 d 4 h", "–", "-500 ms"),
        *("1,234,567", "0", "–", "$0.00", "$1.50", "$0.0123", "$1.0e-5", "–"),
        *("–", "–", "Jan 2, 2020"),
    ]
    title = await page.locator("#scene time").get_attribute("title")
    assert title == "Thursday, January 2, 2020 at 01:00:00 GMT+1 (2020-01-02T00:00:00.123Z)"
