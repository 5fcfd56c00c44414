"""The files of the console, and the headers that they are sent with. They are in the package, so
that the console works offline."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from functools import cache
from html import escape
from pathlib import Path

from msgspec import Struct

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Modules that are imported by name.
NAMES = {
    "preact": "vendor/preact.mjs",
    "preact/hooks": "vendor/hooks.mjs",
    "@preact/signals-core": "vendor/signals-core.mjs",
    "@preact/signals": "vendor/signals.mjs",
    "htm": "vendor/htm.mjs",
}
IMPORTS = re.compile(r"""(?:\bfrom|^import|;import)\s*["']([^"']+)["']""", re.MULTILINE)
# Comments and indentation, which browsers do not need. Comments of scripts are whole lines, or
# types in front of an expression.
UNNEEDED = re.compile(
    r"^[ \t]*/\*(?:(?!\*/).)*\*/[ \t]*\n|^[ \t]*//[^\n]*\n|/\*\* @[^\n*]*\*/ ?|^[ \t]+|^\n",
    re.MULTILINE | re.DOTALL,
)
NEEDED = "The console needs JavaScript."


class Asset(Struct, frozen=True):
    """A file of the console: its media type, its content, and an entity tag."""

    kind: str
    data: bytes
    tag: str


@cache
def assets() -> dict[str, Asset]:
    """Return the files by their paths. No other path is ever read."""
    found: dict[str, Asset] = {}
    for path in sorted(FOLDER.rglob("*")):
        kind = TYPES.get(".js" if path.suffix == ".mjs" else path.suffix)
        if kind is not None and path.is_file():
            data = path.read_bytes()
            if path.suffix in (".js", ".css"):
                data = UNNEEDED.sub("", data.decode()).encode()
            tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            found[path.relative_to(FOLDER).as_posix()] = Asset(kind, data, tag)
    return found


def policy(nonce: str) -> str:
    """Return the content security policy of the page. Only the scripts that the page names may run;
    they cannot create scripts from text."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


@cache
def modules(*names: str) -> list[str]:
    """Return modules and all that they import, but not what is loaded later."""
    found: dict[str, None] = {}
    wanted = list(names)
    while wanted:
        name = wanted.pop(0)
        asset = assets().get(name)
        if asset is None or name in found:
            continue
        found[name] = None
        for path in IMPORTS.findall(asset.data.decode()):
            wanted.append(NAMES.get(path, path.removeprefix("./")))
    return list(found)


def page(base: str, auth: str, version: str, first: str = "sessions.js") -> tuple[str, str]:
    """Return the page and its content security policy. `base` is the path at which the app is
    mounted, `auth` the kind of login, `first` the module that renders the page first."""
    nonce, static = secrets.token_urlsafe(18), f"{base}/console/static"
    at = escape(static)
    scripts = modules("app.js", first)
    styles = [name for name, one in assets().items() if one.kind == TYPES[".css"]]
    names = json.dumps({"imports": {name: f"{static}/{at}" for name, at in NAMES.items()}})
    names = names.replace("<", "\\u003c")
    lines = (
        "<!doctype html>",
        f'<html lang="en" data-base="{escape(base)}" data-auth="{auth}" data-version="{version}">',
        '<head><meta charset="utf-8"><title>Holdfast</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f'<link rel="icon" href="{at}/icon.svg">',
        *(f'<link rel="stylesheet" href="{at}/{escape(name)}">' for name in styles),
        f'<script type="importmap" nonce="{nonce}">{names}</script>',
        *(
            f'<link rel="modulepreload" nonce="{nonce}" href="{at}/{escape(name)}">'
            for name in scripts
        ),
        f'<script type="module" nonce="{nonce}" src="{at}/app.js"></script>',
        f'</head><body><div id="app"></div><noscript>{NEEDED}</noscript></body></html>',
    )
    return "\n".join(lines), policy(nonce)
