"""Which names say that a secret stands under them; compared by whole words."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from .spans import PLACEHOLDER, masked

DEFAULT_KEYS = (
    *("password", "passwd", "pwd", "passphrase", "passcode", "secret", "token", "credential"),
    *("authorization", "cookie", "api_key", "apikey", "private_key", "access_key", "secret_key"),
    *("encryption_key", "signing_key", "connection_string", "account_key", "master_key"),
    *("auth_key", "service_key", "client_key", "subscription_key", "application_key", "app_key"),
    *("ssh_key", "license_key", "deploy_key", "webhook_key", "auth_header", "basic_auth", "jwt"),
    *("otp", "totp", "recovery_code", "backup_code", "seed_phrase", "mnemonic", "client_key_data"),
    *("passwort", "kennwort", "contraseña", "contrasena", "senha", "mot_de_passe"),
)
SECRETS = ("key", "token", "tokens")  # how a name says that a secret stands under it
NAME = 256  # characters of a name that are looked at

_WORDS = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|\d+")
# A name that goes on like this is about a secret and none itself.
_ABOUT = {
    *("count", "counts", "limit", "limits", "budget", "usage", "used", "left", "total", "cost"),
    *("price", "rate", "size", "length", "type", "name", "policy", "ttl", "expiry", "expires"),
    *("expiration", "required", "params", "config", "consent", "jar", "schema", "list", "field"),
    *("label", "placeholder", "reset", "strength", "prompt", "url", "uri", "path", "file", "arn"),
    *("ref", "version", "status", "kind", "format", "prefix", "parser", "validator", "provider"),
    *("manager", "service", "handler", "middleware", "endpoint", "created", "updated", "rotation"),
}
# `tokens` alone are counted; tokens of these are kept secret.
_OWNED = {"access", "refresh", "auth", "oauth", "api", "bearer", "session", "csrf", "device"}
# Names that are written as one word: `PGPASSWORD`, `clientsecret`, `authtoken`.
_JOINED = re.compile(
    r"[^\W\d_]+(?:password|passwd|passphrase|secret|apikey|secretkey|accesskey|privatekey)s?"
    r"|(?:access|refresh|auth|oauth|api|bearer|session|csrf|xsrf|id|client|bot|user)token"
    r"|(?:secret|access|private|account|signing|encryption|master|auth)key"
)


def words(name: str) -> tuple[str, ...]:
    """The words of a name in any manner: `X-Api-Key`, `api_key` and `apiKey` hold api, key."""
    return tuple(word.lower() for word in _WORDS.findall(name))


class Names:
    """The names of secrets, and with `labels` those of what else is to be masked, each
    under its rule."""

    def __init__(self, keys: Iterable[str], labels: Mapping[str, Iterable[str]]) -> None:
        self._keys = frozenset(filter(None, map(words, keys)))
        self._labels = {words(name): rule for rule, names in labels.items() for name in names}
        self._longest = max(map(len, (*self._keys, *self._labels)), default=0)
        self.find = functools.lru_cache(maxsize=4096)(self._find)

    def __bool__(self) -> bool:
        return bool(self._longest)

    def _find(self, name: str) -> str | None:
        """How the name says it: None is not at all, `token` and `tokens` mean texts alone,
        since numbers count them; `key` is any other secret's, the rest are rules of labels."""
        parts = words(PLACEHOLDER.sub(" ", name[:NAME]))
        for start in range(len(parts)):
            for end in range(start + 1, min(start + self._longest, len(parts)) + 1):
                if parts[end : end + 1] and parts[end] in _ABOUT:
                    continue
                if found := self._is_key(parts, start, end):
                    return found
        return None if masked(name) else self._labels.get(parts)

    def _is_key(self, parts: tuple[str, ...], start: int, end: int) -> str | None:
        some = parts[start:end]
        one = (*some[:-1], some[-1].removesuffix("s"))
        if some[-1] == "tokens" and one == ("token",) and one in self._keys:
            owned = start > 0 and parts[start - 1] in _OWNED
            return "tokens" if owned or len(parts) == 1 else None
        if some not in self._keys and one not in self._keys:
            joined = len(some) == 1 and ("password",) in self._keys and _JOINED.fullmatch(some[0])
            return "key" if joined else None
        return "token" if some[-1] == "token" else "key"
