"""Finds secrets with the plugins of detect-secrets, in addition to Holdfast's own rules.

Only their patterns are used, in this process: no files, no settings, no network, no filters and no
verification. Three kinds of plugins are excluded: plugins for high entropy, which report commit
hashes, ids, checksums and opaque parts of model answers; the plugin for IP addresses, which are not
secrets; and plugins that Holdfast's own rules replace.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from ...redact import Span

Plugin: TypeAlias = tuple[str, tuple[str, ...], Any]

WINDOW, OVERLAP = 1 << 14, 1 << 10  # characters of a window, and of its overlap with the next

# Each plugin, and words in lower case; it is used only if one of its words occurs.
PLUGINS = {
    "artifactory.ArtifactoryDetector": "akc ap",
    "aws.AWSKeyDetector": "a3t akia asia abia acca aws",
    "azure_storage_key.AzureStorageKeyDetector": "accountkey=",
    "cloudant.CloudantDetector": "clou cl_ cl- clapi clkey clp cltoken",
    "discord.DiscordBotTokenDetector": ".",
    "github_token.GitHubTokenDetector": "ghp_ gho_ ghu_ ghs_ ghr_",
    "gitlab_token.GitLabTokenDetector": "gl gr1348941",
    "ibm_cloud_iam.IbmCloudIamDetector": "key pwd pass token",
    "ibm_cos_hmac.IbmCosHmacDetector": "secret",
    "mailchimp.MailchimpDetector": "-us",
    "openai.OpenAIDetector": "t3blbkfj",
    "pypi_token.PypiTokenDetector": "pypi-",
    "sendgrid.SendGridDetector": "sg.",
    "slack.SlackDetector": "xox hooks.slack",
    "softlayer.SoftlayerDetector": "softlayer sl_ sl- slapi slkey slp sltoken",
    "square_oauth.SquareOAuthDetector": "sq0csp",
    "stripe.StripeDetector": "k_live_",
    "telegram_token.TelegramBotTokenDetector": ":",
    "twilio.TwilioKeyDetector": "ac sk",
}
# All secrets that the plugins find have a run of this length or one of these prefixes.
_RUN = re.compile(r"[\w+/=-]{20}|xox|AKC|AP[\dA-F]")
# Patterns with several runs of any number of spaces are slow; cutting a text at long runs of
# white space loses nothing.
_CUT = re.compile(r"[\r\n]++|[ \t]{8,}+")
_SHORTEST = 8
_AROUND = " \t\"'=:"  # characters that some patterns include


class Detector:
    """Finds secrets with the patterns of detect-secrets. `looked` counts the characters that were
    searched.
    """

    def __init__(self, name: str, plugins: Sequence[Plugin]) -> None:
        self.name = name
        self.looked = 0
        self._plugins = plugins

    def __call__(self, text: str) -> Iterator[Span]:
        if len(text) < _SHORTEST:
            return
        for start in range(0, len(text), WINDOW - OVERLAP):
            window = text[start : start + WINDOW]
            self.looked += len(window)
            yield from self._window(window, start)
            if start + WINDOW >= len(text):
                break

    def _window(self, window: str, offset: int) -> Iterator[Span]:
        if not _RUN.search(window):
            return
        for line, at in _lines(window):
            if not _RUN.search(line):
                continue
            small = line.lower()
            for rule, hints, plugin in self._plugins:
                if any(hint in small for hint in hints):
                    for pattern in plugin.denylist:
                        yield from _found(rule, pattern, line, offset + at)


def detector() -> Detector | None:
    """Return a detector, or None if detect-secrets is not installed."""
    found = _load()
    return None if found is None else Detector(*found)


@functools.cache
def _load() -> tuple[str, tuple[Plugin, ...]] | None:
    try:
        version = importlib.import_module("detect_secrets.__version__").VERSION
        plugins = []
        for name, hints in PLUGINS.items():
            module, _, kind = name.partition(".")
            made = getattr(importlib.import_module(f"detect_secrets.plugins.{module}"), kind)()
            rule = f"detect-{module.removesuffix('_token').replace('_', '-')}"
            plugins.append((rule, tuple(hints.split()), made))
    except (ImportError, AttributeError):
        return None
    return f"detect-secrets {version}", tuple(plugins)


def _lines(text: str) -> Iterator[tuple[str, int]]:
    at = 0
    for cut in _CUT.finditer(text):
        if cut.start() - at >= _SHORTEST:
            yield text[at : cut.start()], at
        at = cut.end()
    if len(text) - at >= _SHORTEST:
        yield text[at:], at


def _found(rule: str, pattern: re.Pattern[str], line: str, offset: int) -> Iterator[Span]:
    """Yield the matches of a plugin's pattern. If a group of the pattern is long enough to be the
    secret, only that group is used.
    """
    for found in pattern.finditer(line):
        start, end = found.span()
        for group in range(1, pattern.groups + 1):
            if found[group] is not None and len(found[group]) >= _SHORTEST:
                start, end = found.span(group)
        if line.startswith("AccountKey=", start):
            start += len("AccountKey=")
        while start < end and line[start] in _AROUND:
            start += 1
        while end > start and line[end - 1] in _AROUND[:4]:
            end -= 1
        if end - start >= _SHORTEST and (rule != "detect-artifactory" or _mixed(line[start:end])):
            yield Span(offset + start, offset + end, rule)


def _mixed(text: str) -> bool:
    return any(c.isdigit() for c in text) and any(c.islower() for c in text)
