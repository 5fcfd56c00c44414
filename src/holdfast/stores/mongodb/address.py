"""Parsing of a MongoDB store's URL into Holdfast's options, the driver's options, and a location
without credentials."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pymongo import AsyncMongoClient
from pymongo.driver_info import DriverInfo
from pymongo.errors import ConfigurationError, InvalidURI
from pymongo.uri_parser import split_options

from ...errors import InvalidValue
from ..url_options import OPTIONS, parse_query, read_options
from .entry import Document

DATABASE = "holdfast"

# Defaults, unless the URL sets them: a server that does not respond is detected in time, and idle
# connections are closed before a firewall or proxy drops them.
DEFAULTS = {
    "serverSelectionTimeoutMS": 3_000,
    "connectTimeoutMS": 5_000,
    "maxIdleTimeMS": 120_000,
    "heartbeatFrequencyMS": 2_000,
    "maxPoolSize": 100,
}


@dataclass(frozen=True)
class MongoAddress:
    """The address of a database, with options. Only `location` may be shown to users; the other
    fields may contain credentials."""

    url: str = field(repr=False)
    location: str
    database: str
    patience: float

    @classmethod
    def of(cls, url: str) -> MongoAddress:
        """Parse a URL that has no Holdfast options."""
        base, _, query = url.partition("?")
        scheme, _, rest = base.partition("://")
        hosts, slash, database = rest.partition("/")
        hosts = hosts.rpartition("@")[2]
        if "@" in database or "@" in query:
            raise _unusable("has a character in its user name or password that must be escaped")
        ours: list[str] = []
        theirs: list[str] = []
        for part in filter(None, query.split("&")):
            (ours if part.partition("=")[0] in OPTIONS["mongodb"] else theirs).append(part)
        database = unquote(database) or DATABASE
        if scheme == "mongodb":
            hosts = ",".join(
                host if ":" in host.rpartition("]")[2] or "%" in host else f"{host}:27017"
                for host in hosts.split(",")
            )
        return cls(
            url=base
            + ("" if slash or not theirs else "/")
            + ("?" if theirs else "")
            + "&".join(theirs),
            location=f"{hosts}/{database}",
            database=database,
            **read_options("mongodb", parse_query("&".join(ours))),
        )

    async def connect(self) -> AsyncMongoClient[Document]:
        """Create the store's own client, which connects on first use. It is created in a thread,
        because the driver reads files while it creates a client."""
        return await asyncio.to_thread(self._client)

    def _client(self) -> AsyncMongoClient[Document]:
        options = list(filter(None, self.url.partition("?")[2].split("&")))
        for option in options:
            _check_option(option)
        given = {option.partition("=")[0].lower() for option in options}
        defaults: dict[str, Any] = {
            name: ms for name, ms in DEFAULTS.items() if name.lower() not in given
        }
        try:
            return AsyncMongoClient(self.url, driver=DriverInfo("holdfast"), **defaults)
        except (ConfigurationError, ValueError, TypeError) as error:
            # Omit the driver's text, which may quote part of the URL.
            problem = f"is rejected by the driver ({type(error).__name__})"
        raise _unusable(problem)


def _check_option(option: str) -> None:
    """Reject an option that the driver would ignore with a warning."""
    try:
        split_options(option, validate=True, warn=False)
        return
    except (ConfigurationError, InvalidURI, ValueError, TypeError):
        name = option.partition("=")[0]
    raise InvalidValue(
        field="url",
        problem=f"has an unknown option or an invalid value ({name!r})",
        remedy="remove it, or see the driver's list of options",
    )


def _unusable(problem: str) -> InvalidValue:
    return InvalidValue(
        field="url",
        problem=problem,
        remedy="write it as mongodb://USER:PASSWORD@HOST:PORT/DATABASE?OPTIONS, "
        "with special characters of user and password percent-escaped",
    )
