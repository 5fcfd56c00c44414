"""Command lines. An option of many programs has a long name that says it (`--password`), and `pairs` reads those.
Here are the short ones, whose meaning only the program knows (`commands` lists them), and the programs that take a
secret as their argument."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..spans import Span, shaped, shapes, trie
from ..values import NO_SECRET, Looks, looks, mixed, random
from .commands import OPTIONS, PORTS, VERBS
from .landmarks import Landmarks
from .prose import strong

# ruff: noqa: E501 - a pattern is easier to read in one piece

_WORD = re.compile(r"\"((?:[^\"\\\r\n]|\\.){0,4096})\"|'([^'\r\n]{0,4096})'|[^\s\"'|;<>&]{1,4096}+")
_LINE = re.compile(r"[^\r\n]{1,4096}")
_BREAK = re.compile(r"\|\|?|&&|;|(?:^|\s)[<>]")
_WORDS = 64  # of a command
_OTHERS = shapes(
    (
        "redis-acl",
        "SETUSER|setuser",
        r"(?i:acl setuser) \S{1,64} [^\r\n]{0,128}?>([^\s\"']{4,256})",
    ),
    (
        "prompt",
        "nter ",
        r"nter (?:[\w'’-]{1,16} ){0,3}(?i:pass(?:phrase|word))[^\r\n:]{0,80}: ?([^\s][^\r\n]{3,128})(?=\r?\n|\Z)",
    ),
    (
        "expect",
        "send ",
        r"assword[^\r\n]{0,8}\r?\n\s{0,16}(?:exp_)?send (?:-- )?[\"{]([^\"\\\r\n{}]{4,128})",
    ),
    ("snmp", "community ", r"(?:snmp-server|\br[ow])[ ]?community ([^\s\"']{4,64})"),
    ("snmp", "createUser", r"createUser \S{1,64} \w{2,8} [\"']?([^\s\"']{4,64})"),
    ("snmp", "createUser", r"createUser [^\r\n]{1,128} (?:AES|DES)\w{0,4} [\"']?([^\s\"']{4,64})"),
    ("radius", "-server", r"(?:tacacs|radius)-server [^\r\n]{0,64} key (?:\d )?([^\s\"']{4,64})"),
    ("login", "auth ", r"(?m)\bauth [\w.-]{1,32}:([^\s\"':]{4,128})\r?$"),
    (
        "given",
        "echo |printf ",
        r"(?:echo|printf)[ ](?:-\w{1,4}[ ])?[\"']?([^\s\"'|$]{4,256})[\"']?[ ]{0,2}\|[ ]{0,2}"
        r"(?:sudo -S|docker login|podman login|(?:sudo[ ])?passwd|kinit|cryptsetup|helm registry|skopeo login|oras login)",
    ),
    (
        "output",
        "pass show|secret-tool|find-generic|find-internet|get-parameter|versions access|kv get|op read|pwgen|rand -",
        r"(?m)^[^\n]{0,60}?[$#>%] [^\n]{0,200}?(?:pass show|secret-tool lookup|find-(?:generic|internet)-password"
        r"|get-parameter[^\n]{0,160}--with-decryption|secrets versions access|kv get[^\n]{0,80}-field|op read|pwgen"
        r"|openssl rand -(?:hex|base64))[^\n]{0,200}\n([^\s{$#>%][^\r\n]{3,512})",
    ),
    (
        "passphrase",
        "assphrase",
        r"assphrase[^\r\n:]{0,40}?[:=] (?!must|should|can|may|will|requir|not|the |an? |to |for |is )"
        r"((?:[^\s.,;:\"']{1,24} ){2,7}[^\s.,;:\"']{1,24})[.]?(?=\r?\n|\Z)",
    ),
    ("imap", "LOGIN ", r"\bLOGIN (?!PASSWORD)[^\s\"]{1,64} \"?([^\s\"]{4,128})"),
    ("ftp", "PASS ", r"(?m)(?:^|[>:] ?|quote )PASS ([^\s]{4,128})\r?$"),
    ("poetry", "http-basic.", r"config http-basic\.\S{1,64} \S{1,64} ([^\s]{4,256})"),
    (
        "router",
        "line vty|isakmp|neighbor |enable secret|password-encryption|snmp-server",
        r"(?m)^[ \t]{0,8}(?:enable |neighbor \S{1,40} |username \S{1,40} (?:privilege \d{1,2} )?|ip ftp )?"
        r"(?:password|secret) (?:\d )?([^\s]{4,64})\r?$",
    ),
    ("router", "isakmp", r"isakmp key (?:\d )?([^\s]{4,64}) "),
    ("router", "message-digest-key", r"message-digest-key \d{1,3} md5 (?:\d )?([^\s]{4,64})"),
    ("router", "radius server", r"(?m)^[ \t]{1,8}key (?:\d )?([^\s]{4,64})\r?$"),
    (
        "login",
        "@",
        r"@(?<=[\w+-]@)[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}:(?=[^\s]*[a-zA-Z])(?=[^\s]*\d)([^\s:/@\"'<>,;]{6,64})(?=[\s\"'<>,;]|\Z)",
    ),
    ("printed", "New value", r"New value: ([^\s]{8,128})"),
    (
        "otp",
        "code",
        r"code(?:(?<=nter the code)|(?<=nter this code)|(?<=nter your code)|(?<=nter code)|(?<=cation code)"
        r"|(?<=urity code)|(?<=mation code)|(?<=ogin code)|(?<=time code)):? (?:is )?(\d{3}[ -]?\d{3}|\d{4,8})(?![\w-])",
    ),
    ("otp", "manually", r"manually:\s{1,4}([a-z0-9]{4}(?:[ ][a-z0-9]{4}){3,15})(?![\w-])"),
    ("otp", "oathtool", r"oathtool [^\r\n]{0,256}\r?\n(\d{6,8})(?=\s|\Z)"),
    (
        "redis",
        "AUTH ",
        r"(?:^|[>\s])AUTH[ ](?:default[ ]|\w{1,32}[ ])?([^\s\"']{6,256})[ ]{0,2}(?:$|\n)",
    ),
    (
        "redis",
        "onfig set|ONFIG SET",
        r"(?i:config set (?:requirepass|masterauth))[ ][\"']?([^\s\"']{4,256})",
    ),
    (
        "chpasswd",
        "chpasswd",
        r"[\w.-]{1,64}:([^\s\"'|:]{4,256})[\"']?[ ]{0,4}\|[ ]{0,4}(?:sudo[ ])?chpasswd",
    ),
    (
        "shell",
        "SecureString|securestring",
        r"(?i:convertto-securestring)[ ](?:-string[ ])?[\"']([^\"'\r\n]{4,256})[\"']",
    ),
    (
        "shell",
        "openssl passwd",
        r"openssl passwd (?:-[\w-]{1,16} (?:[\w./]{1,16} )??){0,4}([^\s\"')-][^\s\"')]{3,128})",
    ),
    ("shell", "pass:", r"(?<![\w-])pass:([^\s\"'`,;)\]]{4,256})"),
    (
        "shell",
        "echo |printf ",
        r"(?:echo|printf)[ ](?:-\w{1,4}[ ])?[\"']?([^\s\"'|]{6,256})[\"']?[ ]{0,2}\|[ ]{0,2}(?:sudo[ ])?"
        r"(?:cryptsetup|sudo -S|docker login|podman login|passwd|kinit|gpg|su\b|openssl enc|base64"
        r"|smbclient|helm registry|xargs|tee|pass\b|vault|gh auth|gh secret|ssh-add|veracrypt|restic"
        r"|borg|skopeo|oras)",
    ),
    ("shell", "<<<", r"<<<[ ]{0,2}[\"']?([^\s\"'$][^\s\"']{5,255})"),
    (
        "netrc",
        "password",
        r"login(?<!\w.....)\s{1,8}\S{1,256}\s{1,8}(?:account\s{1,8}\S{1,64}\s{1,8})?password\s{1,8}(\S++)",
    ),
    (
        "net",
        "/user:",
        r"(?i:\bnet[ ]use\b)[^\r\n]{0,128}?\\\\[^\s]{1,128}[ ]([^\s/*][^\s]{3,128})[ ]/user:",
    ),
    (
        "net",
        "/user:",
        r"(?i:\bnet[ ]use\b)[^\r\n]{0,160}?/user:\S{1,64}[ ]([^\s/*][^\s]{3,128})",
    ),
    (
        "net",
        "net user|NET USER",
        r"(?i:\bnet[ ]user[ ])[\w.-]{1,64}[ ]([^\s/*][^\s]{3,128})[ ]{0,2}(?:/\w|$|\n)",
    ),
    (
        "configure",
        " set ",
        r"\b(?:configure|config)[ ]set[ ][\w.-]{0,64}(?:secret|token|key|password|passwd|credential)"
        r"[\w.-]{0,32}[ ][\"']?([^\s\"']{4,1024})",
    ),
    (
        "printenv",
        "printenv|echo",
        r"(?m)^[^\n]{0,32}?(?:printenv[ ]|echo[ ]\"?\$\{?)\w{0,64}"
        r"(?i:PASS(?:WORD)?|SECRET|TOKEN|KEY|PWD|PAT|CREDENTIALS?)"
        r"\}?\"?[ ]{0,2}\r?\n([^\s$#>][^\s]{5,1024})\r?(?:\n|\Z)",
    ),
)
_NOT = NO_SECRET | {Looks.NAME}


def shell(text: str, marks: Landmarks) -> Iterator[Span]:
    """Secrets among the words of commands."""
    done = 0
    for program in marks.programs:
        found = _PROGRAM.match(text, program.start - (program.text in ("z", "za")))
        line = _LINE.match(text, found.end()) if found and program.start >= done else None
        if found is not None and line is not None:
            words = _split(text, *line.span())
            done = words[-1][1] if words else 0
            yield from _command(text, OPTIONS[found[1]], found[1], words)
    yield from _about_secrets(text, marks)
    for span in shaped(text, _OTHERS):
        if _is_secret(
            text[span.start : span.end], sure=span.rule not in ("shell", "redis", "printed")
        ):
            yield span


_PROGRAM = re.compile(rf"(?<![\w-])({trie(OPTIONS)})(?:\.exe)?(?=[ \t])")
_ABOUT = re.compile(rf"(?<=[ \t])(?:{trie(VERBS)})(?=[ \t])")
_GIVEN = {"--value", "--secret-string", "--secret-value", "--string-value", "--data-file-value"}
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:/\S*)?|[\w.+-]+@[\w.-]+|/\S*|\w+:/\S*")


def _about_secrets(text: str, marks: Landmarks) -> Iterator[Span]:
    done = 0
    for verb in marks.verbs:
        about = _ABOUT.match(text, verb.start) if verb.start >= done else None
        line = _LINE.match(text, about.end()) if about else None
        before = ""
        for begin, stop in _split(text, *line.span()) if line else ():
            done = stop
            name, sign, _ = text[begin:stop].partition("=")
            start = begin + len(name) + 1 if sign and "://" not in name else begin
            value = text[start:stop]
            likely = strong(value) or (random(value) and "/" not in value)
            likely = likely or (before in _GIVEN and looks(value) not in _NOT)
            before = text[begin:stop]
            if likely and value[0] not in "-$" and "(" not in value and not _HOST.fullmatch(value):
                yield Span(start, stop, "shell")


def _is_secret(value: str, *, sure: bool) -> bool:
    shape = looks(value)
    if sure and shape in (Looks.NUMBER, Looks.PHRASE):
        return True
    if shape in _NOT:
        return False
    return sure or shape is Looks.RANDOM or mixed(value)


def _command(
    text: str, options: dict[str, str], name: str, words: list[tuple[int, int]]
) -> Iterator[Span]:
    """The secrets among the words of one command."""
    plain = 0
    for n, (begin, stop) in enumerate(words):
        word = text[begin:stop]
        option, sign, _ = word.partition("=")
        if sign and options.get(option, "") not in ("", "n"):
            yield from _value(text, options[option], begin + len(option) + 1, stop, name)
        elif word in options and n + 1 < len(words) and options[word] != "a":
            yield from _value(text, options[word], *words[n + 1], name, more=words[n + 2 :])
        elif attached := _attached(word, options):
            at = begin + len(attached)
            yield from _value(text, options[attached], at, stop, name, attached=True)
        elif not word.startswith("-"):
            plain += 1
            if options.get(str(plain)) == "s":
                yield from _value(text, "s", begin, stop, name)


def _split(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Where the words of a command stand, without the quotes around them."""
    found: list[tuple[int, int]] = []
    at = start
    while len(found) < _WORDS and at < end:
        while at < end and text[at] in " \t":
            at += 1
        if _BREAK.match(text, at, end):
            break
        word = _WORD.match(text, at, end)
        if word is None:
            break
        group = next((n for n in (1, 2) if word[n] is not None), 0)
        begin, stop = word.span(group)
        at = word.end()
        # `-p'secret'` is one word of two pieces.
        if not group and (more := _WORD.match(text, at, end)) and (more[1] or more[2]):
            stop, at = more.end() - 1, more.end()
        found.append((begin, stop))
    return found


def _attached(word: str, options: dict[str, str]) -> str | None:
    """The short option that a word begins with, and whose value is the rest of it."""
    for option, kind in options.items():
        short = (len(option) == 2 and "-passin" not in options) or "a" in kind
        if short and option[0] in "-/" and word.startswith(option) and len(word) > len(option):
            return option
    return None


def _value(
    text: str,
    kind: str,
    start: int,
    end: int,
    program: str,
    *,
    attached: bool = False,
    more: list[tuple[int, int]] | None = None,
) -> Iterator[Span]:
    while start < end and text[start] in "\"'=:":
        start += 1
    if kind in ("n", "") or (attached and len(text[start:end]) < 3):
        return
    if kind == "l" and more:
        start, end = more[-1]
    if kind in "u%," and (at := text.find({"u": ":"}.get(kind, kind), start, end)) >= 0:
        user = (start, at)
        start = at + 1
        if start == end:
            start, end = user  # a token in the place of the user
    elif kind in "u%,":
        if random(text[start:end]) and mixed(text[start:end]):
            yield Span(start, end, "shell")
        return
    if kind == "p":
        lead, sign, _ = text[start:end].partition(":")
        if lead not in ("pass", "env", "file", "fd", "stdin") or lead != "pass" or not sign:
            return
        start += 5
    if kind == "c" and "=" in text[start:end]:
        start = text.index("=", start, end) + 1
    value = text[start:end]
    shape = looks(value)
    made_up = shape is Looks.NAME and "-" in value and program not in PORTS
    if (shape in _NOT and not made_up) or (shape is Looks.NUMBER and kind != "u"):
        return
    if program in PORTS and kind != "u" and not (mixed(value) or random(value)):
        return
    yield Span(start, end, "curl" if program == "curl" else "shell")
