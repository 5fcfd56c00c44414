"""The location of a store without the secrets of its URL, for messages, logs and comparisons."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote

HERE = ("sqlite", "file")  # schemes of stores at a path on this machine
_HOST = r"(?:[\w.%-]+|\[[0-9a-fA-F:.]+\])(?::\d+)?"
_ADDRESS = re.compile(
    rf"//(?:[^@/?#]*@)?(?P<host>{_HOST}(?:,{_HOST})*)(?P<path>/[\w.%-]*)?(?:\?[^@]*)?"
)


def place(url: str) -> Path | None:
    """Return the path of a store on this machine; None for other stores."""
    scheme, _, rest = url.partition(":")
    if scheme not in HERE:
        return None
    return Path(unquote(rest.partition("?")[0].removeprefix("//")))


def shown(url: str) -> str:
    """Return the URL without credentials and options. The server's address is omitted too if the
    URL is ambiguous, because part of a password could be mistaken for part of the address."""
    scheme, _, rest = url.partition(":")
    if scheme in HERE or not rest:
        return url
    address = _ADDRESS.fullmatch(rest)
    return f"{scheme}:{'//' + address['host'] + (address['path'] or '') if address else '…'}"


def address(url: str) -> str:
    """Return a text that identifies the store of a URL, independent of the working directory. It is
    an absolute path, or the address of a database server without user, password and options."""
    path = place(url)
    if path is None:
        return shown(url)
    whole = quote(str(path.resolve()), safe="/:\\", errors="surrogateescape")
    return f"{url.partition(':')[0]}:{whole}"
