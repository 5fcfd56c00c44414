"""`docs/glossary.md` defines every project word once, and the pages use the words in that sense:
paraphrases that readers would have to translate are rejected, with the word to use."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text()
ENTRIES = re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S)
WORDS = [
    "event",
    "log",
    "incarnation",
    "thread",
    "session",
    "store",
    "row",
    "phase",
    "state",
    "fold",
    "decide",
    "perform",
    "run",
    "mode",
    "harness",
    "grant",
    "lease",
    "fence",
    "draft",
    "claim",
    "blob",
    "snapshot",
    "surface",
    "tenant",
    "bundle",
    "vault",
    "link",
    "worker",
    "driver",
    "subscriber",
    "cursor",
    "agent",
    "tool",
    "sandbox",
    "fork",
    "checkpoint",
]
EXPLANATION = [
    *("concepts", "the-log", "promises", "leases", "crashes", "security-model", "scale"),
    *("tutorial", "index"),
]
# What the pages must not say, and the word for it.
PARAPHRASES = {
    r"whoever (drives|serves|asks)": "worker, driver or caller",
    r"somebody (always )?drives": "a worker drives",
    r"those who (are told|listen|ask|hear)": "subscribers, callers",
    r"strangers": "callers, clients",
    r"(stands?|kept) beside": "alongside, in addition to",
    r"what is asked of": "request",
    r"by other hands": "by other software, by someone else",
    r"goes on by itself": "continues",
    r"is to be had|are to be had": "exists, is available",
    r"may be left out": "is optional",
    r"unless it is said": "by default",
}

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RIDDLES = re.compile(
    r"\b(whoever|somebody|anew|goes on|is away|taken up|takes? up (its|the|what)|put away|hears"
    r"|those who|beside|stands (in the|under|behind)|for ever|now and then)\b",
    re.I,
)


def test_every_project_word_is_defined_once() -> None:
    counted = Counter(title.lower() for title, _ in ENTRIES)
    assert [word for word, count in counted.items() if count > 1] == []
    missing = [word for word in (*WORDS, "pending item") if counted[word] != 1]
    assert missing == []


@pytest.mark.parametrize(("title", "text"), ENTRIES, ids=[title for title, _ in ENTRIES])
def test_every_entry_is_short_and_links_a_page_that_uses_the_word(title: str, text: str) -> None:
    assert 5 < len(text.split()) < 60
    targets = re.findall(r"\]\(([\w./-]+\.md)", text)
    assert targets, title
    stems = [word.removesuffix("e") for word in title.lower().split()]
    pages = [(ROOT / "docs" / target).read_text().lower() for target in targets]
    assert any(all(stem in page for stem in stems) for page in pages), (
        f"{targets} do not use {title!r}"
    )


def test_no_page_but_the_glossary_defines_the_words_again() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name != "glossary.md":
            assert "| word | is |" not in page.read_text(), page.name


@pytest.mark.parametrize("name", EXPLANATION)
def test_the_newcomer_s_pages_lead_to_the_glossary_or_from_it(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text()
    assert "glossary.md" in text or f"({name}.md" in PAGE, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_the_words_of_the_field(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    plain = " ".join(text.split())
    found = [
        f"{match[0]!r}: write {instead}"
        for paraphrase, instead in PARAPHRASES.items()
        for match in re.finditer(rf"\b({paraphrase})\b", plain, re.I)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_written_in_plain_words(page: Path) -> None:
    plain = " ".join(re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S).split())
    assert [match[0] for match in RIDDLES.finditer(plain)] == []
