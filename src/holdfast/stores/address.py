"""Where a store is, without the secrets of its URL: what may be printed, logged and compared."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote

HERE = ("sqlite", "file")  # the stores that live at a path on this machine
_HOST = r"(?:[\w.%-]+|\[[0-9a-fA-F:.]+\])(?::\d+)?"
_ADDRESS = re.compile(
    rf"//(?:[^@/?#]*@)?(?P<host>{_HOST}(?:,{_HOST})*)(?P<path>/[\w.%-]*)?(?:\?[^@]*)?"
)


def place(url: str) -> Path | None:
    """Where on this machine the store is, if it is at a path."""
    scheme, _, rest = url.partition(":")
    if scheme not in HERE:
        return None
    return Path(unquote(rest.partition("?")[0].removeprefix("//")))


def shown(url: str) -> str:
    """The URL as it may be printed: of a server, where it is and nothing else; not even that
    where a stray character could make a part of a password look like a part of the address."""
    scheme, _, rest = url.partition(":")
    if scheme in HERE or not rest:
        return url
    address = _ADDRESS.fullmatch(rest)
    return f"{scheme}:{'//' + address['host'] + (address['path'] or '') if address else '…'}"


def address(url: str) -> str:
    """Which store a URL means, whatever folder it is read in: an absolute path, or the address of
    a database server. No user, password or option is part of it."""
    path = place(url)
    if path is None:
        return shown(url)
    whole = quote(str(path.resolve()), safe="/:\\", errors="surrogateescape")
    return f"{url.partition(':')[0]}:{whole}"
