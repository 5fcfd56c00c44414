"""Builds the documentation into `site/`: `site.py`. Runs in the environment of `scripts/docs`.

Zensical builds the pages and checks the links between them. This script adds Mermaid, so that the
site asks no other server for anything, and checks what Zensical does not: the links in docstrings,
the anchors of the API reference, the syntax of the diagrams, and that no page loads a remote file.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
MERMAID = "assets/javascripts/mermaid.js"
DIAGRAM = re.compile(r'<pre class="mermaid"><code>(.*?)</code></pre>', re.DOTALL)
BUNDLE = re.compile(r'<script src="([./]*)assets/javascripts/bundle')
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(HTMLParser):
    """The anchors of a page, its links, and the files that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.links, self.loads = {"", "__top"}, set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag in LOADED and LOADED[tag] in given and given.get("rel") not in ("canonical", "next"):
            self.loads.add(given[LOADED[tag]])


def main() -> int:
    shutil.rmtree(SITE, ignore_errors=True)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run(
        [zensical, "build", "--strict", "--clean"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    said = re.sub(r"\x1b\[[0-9;]*m", "", built.stdout + built.stderr)
    if built.returncode:
        print(said.partition("Traceback")[0], file=sys.stderr)
        return 1
    pages = {path: path.read_text() for path in sorted(SITE.rglob("*.html"))}
    faults = [*re.findall(r"^.*(?:WARNING|ERROR).*$", said, re.M), *add_mermaid(pages)]
    faults += broken({path: Page(text) for path, text in pages.items()})
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print(f"{len(pages)} pages in {SITE.relative_to(ROOT)}/: open site/index.html,", end=" ")
        print("or run: python -m http.server -d site")
    return 1 if faults else 0


def add_mermaid(pages: dict[Path, str]) -> list[str]:
    """Load Mermaid from the site itself on each page with diagrams, and try the diagrams."""
    from mermaidx import render  # noqa: PLC0415 - slow, and only here

    shutil.copyfile(str(files("mermaidx") / "assets" / "mermaid.js"), SITE / MERMAID)
    faults = []
    for path, text in pages.items():
        diagrams = DIAGRAM.findall(text)
        for diagram in diagrams:
            try:
                render(unescape(diagram))
            except Exception as error:
                faults.append(f"{path.relative_to(SITE)}: {error} in the diagram:\n{diagram}")
        if diagrams:
            loaded, count = BUNDLE.subn(rf'<script src="\1{MERMAID}"></script>\g<0>', text)
            assert count == 1, path
            path.write_text(loaded)
    return faults


def broken(pages: dict[Path, Page]) -> list[str]:
    """The links that lead nowhere, and the files that other servers hold or that do not exist."""
    faults = []
    for path, page in pages.items():
        where = path.relative_to(SITE)
        if where.name == "404.html":
            continue  # its addresses are absolute
        for link in sorted(page.links):
            target, anchor = urldefrag(link)
            if re.match(r"[a-z]+:", target):
                continue
            found = (path.parent / unquote(target)).resolve() if target else path
            found = found / "index.html" if found.is_dir() else found
            if not found.exists():
                faults.append(f"{where}: {link} does not exist")
            elif found in pages and unquote(anchor) not in pages[found].anchors:
                faults.append(f"{where}: {link} has no such anchor")
        for load in sorted(page.loads):
            if re.match(r"([a-z]+:)?//", load) or not (path.parent / load).exists():
                faults.append(f"{where}: loads {load}, which is not in the site")
    return faults


if __name__ == "__main__":
    sys.exit(main())
