"""Command lines: which word of which program is a secret, as data.

An option of many programs has a long name that says it (`--password`), and `pairs` reads those. Here are
the short ones, whose meaning only the program knows, and the programs that take a secret as their argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..spans import Span, trie
from ..values import Looks, looks, mixed, random
from .prose import strong

# ruff: noqa: E501 - a pattern is easier to read in one piece

# What the word behind an option is: `s` a secret; `u` a user, and behind a colon the secret; `%` and `,` the
# same behind that sign; `c` cookies; `a` a secret that is attached to the option, and nothing else is.
PROGRAMS: dict[str, str] = {
    "curl": "-u:u --user:u -U:u --proxy-user:u -b:c --cookie:c --pass:s --proxy-pass:s -E:u",
    "wget": "--http-passwd:s --ftp-password:s",
    "http https xh": "-a:u --auth:u",
    "mysql mysqldump mysqladmin mariadb mariadb-dump mycli mysqlimport mysqlsh": "-p:a",
    "redis-cli valkey-cli keydb-cli": "-a:s --pass:s",
    "ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldappasswd": "-w:s -s:s",
    "zip unzip 7z 7za rar unrar zipcloak": "-P:s -p:a -hp:a",
    "sshpass": "-p:sa",
    "mongosh mongo mongodump mongorestore mongoexport mongoimport": "-p:s",
    "docker podman nerdctl helm skopeo buildah oras crane": "-p:s --creds:u --src-creds:u --dest-creds:u",
    "sqlcmd bcp osql": "-P:s",
    "az": "-p:s",
    "smbclient rpcclient smbget smbmap crackmapexec netexec": "-U:% -p:s --password:s",
    "lftp ncftpget ncftpput": "-u:, -p:s",
    "snmpwalk snmpget snmpset snmpbulkwalk snmptrap": "-A:s -X:s -c:s",
    "keytool jarsigner": "-storepass:s -keypass:s -srcstorepass:s -deststorepass:s -srckeypass:s -destkeypass:s",
    "openssl": "-passin:p -passout:p -pass:p -k:s -K:s -password:p",
    "gpg gpg2": "--passphrase:s",
    "htpasswd": "-b:l -nb:l -bn:l -cb:l -bc:l -Bb:l -bB:l -nbB:l -Bbn:l -cbB:l",
    "ansible ansible-playbook ansible-vault": "-e:n",
    "xfreerdp rdesktop wfreerdp": "/p:a -p:s",
    "ipmitool": "-P:s",
    "ssh-keygen": "-N:s -P:s",
    "security": "-w:s -p:s",
    "etcdctl": "--user:u",
    "nmcli": "password:s",
    "psexec psexec.exe impacket-psexec": "-p:s",
    "cadaver aria2c": "--http-passwd:s --ftp-passwd:s",
    "svn": "--password:s",
    "influx": "-p:s -password:s -t:s",
    "cqlsh": "-p:s",
    "clickhouse-client clickhouse": "--password:s",
    "isql tsql": "-P:s",
    "hydra medusa": "-p:s",
    "ab": "-A:u -P:u",
    "wpa_passphrase": "2:s",
    "rabbitmqctl": "3:s",
    "useradd usermod": "-p:s",
    "mkpasswd": "-m:n 1:s",
    "mosquitto_pub mosquitto_sub": "-P:s",
    "oc kubectl": "-p:s",
    "iwconfig": "key:s",
    "net": "3:n",
    "cmdkey": "/pass:a",
    "rasdial": "3:s",
    "schtasks": "/rp:s",
    "wmic": "/password:a",
    "winrs": "-p:a /p:a",
    "beeline": "-p:s",
    "hdbsql": "-p:s",
    "db2": "using:s",
    "ykman": "-p:s -P:s -n:s",
    "qpdf": "--decrypt:n",
    "pdftk": "user_pw:s owner_pw:s input_pw:s",
    "pdftotext": "-upw:s -opw:s",
    "steghide": "-p:s",
    "twine": "-p:s",
    "nuget dotnet": "-p:s -k:s --api-key:s",
    "cf": "-p:s",
    "ibmcloud": "-p:s",
}

_WORD = re.compile(r"\"((?:[^\"\\\r\n]|\\.){0,4096})\"|'([^'\r\n]{0,4096})'|[^\s\"'|;<>&]{1,4096}+")
_LINE = re.compile(r"[^\r\n]{1,4096}")
_BREAK = re.compile(r"\|\|?|&&|;|(?:^|\s)[<>]")
_WORDS = 64  # of a command
# The rule, texts of which one must be there, and a pattern whose last group is the secret.
_OTHERS = tuple(
    (rule, tuple(marks.split("|")), re.compile(pattern))
    for rule, marks, pattern in (
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
            " |",
            r"\b(?:echo|printf)[ ](?:-\w{1,4}[ ])?[\"']?([^\s\"'|]{6,256})[\"']?[ ]{0,2}\|[ ]{0,2}(?:sudo[ ])?"
            r"(?:cryptsetup|sudo -S|docker login|podman login|passwd|kinit|gpg|su\b|openssl enc|base64"
            r"|smbclient|helm registry|xargs|tee|pass\b|vault|gh auth|gh secret|ssh-add|veracrypt|restic"
            r"|borg|skopeo|oras)",
        ),
        ("shell", "<<<", r"<<<[ ]{0,2}[\"']?([^\s\"'$][^\s\"']{5,255})"),
        (
            "netrc",
            "password",
            r"\blogin\s{1,8}\S{1,256}\s{1,8}(?:account\s{1,8}\S{1,64}\s{1,8})?password\s{1,8}(\S++)",
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
)
_HINTS = re.compile(
    rf"(?<![\w-])({trie(name for names in PROGRAMS for name in names.split())})(?:\.exe)?(?=[ \t])"
)
_BY_NAME = {
    name: dict(one.rsplit(":", 1) for one in options.split())
    for names, options in PROGRAMS.items()
    for name in names.split()
    if options
}
_NOT = {Looks.EMPTY, Looks.REFERENCE, Looks.PLACEHOLDER, Looks.PLAIN, Looks.LABEL, Looks.NAME}


def shell(text: str) -> Iterator[Span]:
    """Secrets among the words of commands."""
    done = 0
    for hint in _HINTS.finditer(text):
        line = _LINE.match(text, hint.end()) if hint.start() >= done else None
        if line is not None:
            words = _split(text, *line.span())
            done = words[-1][1] if words else 0
            yield from _command(text, _BY_NAME[hint[1]], hint[1], words)
    yield from _about_secrets(text)
    for rule, marks, pattern in _OTHERS:
        if not any(mark in text for mark in marks):
            continue
        for found in pattern.finditer(text):
            group = found.lastindex or 0
            if _is_secret(found[group], sure=rule not in ("shell", "redis")):
                yield Span(*found.span(group), rule)


# A command about secrets: what looks like one among its words is one.
_VERBS = (
    *(
        "login",
        "unseal",
        "unlock",
        "authtoken",
        "add-authtoken",
        "set-env",
        "setenv",
        "put-parameter",
    ),
    *(
        "create-secret",
        "put-secret-value",
        "update-secret",
        "encrypt_string",
        "adduser",
        "add_user",
    ),
    *("change_password", "set-initial-password", "setapikey", "authkey", "passwd", "auth", "write"),
    *("auth login", "auth init", "auth add", "auth set", "auth activate-service-account", "export"),
    *(
        "config",
        "config set",
        "config:set",
        "config add",
        "configure set",
        "remote modify",
        "env:set",
    ),
    *("user add", "user create", "kv put", "secret set", "secret put", "keyvault secret set"),
    *(
        f"{what} {verb}"
        for what in (
            "secret",
            "secrets",
            "credential",
            "credentials",
            "variable",
            "variables",
            "alias",
        )
        for verb in ("set", "put", "add", "create", "import", "update", "write", "versions add")
    ),
    *(f"create secret {kind}" for kind in ("generic", "docker-registry", "tls")),
)
_ABOUT = re.compile(rf"(?<=[ \t])(?:{trie(_VERBS)})(?=[ \t])")
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:/\S*)?|[\w.+-]+@[\w.-]+|/\S*|\w+:/\S*")


def _about_secrets(text: str) -> Iterator[Span]:
    done = 0
    for about in _ABOUT.finditer(text):
        line = _LINE.match(text, about.end()) if about.start() >= done else None
        done = line.end() if line else done
        for begin, stop in _split(text, *line.span()) if line else ():
            name, sign, _ = text[begin:stop].partition("=")
            start = begin + len(name) + 1 if sign and "://" not in name else begin
            value = text[start:stop]
            likely = strong(value) or (random(value) and "/" not in value)
            if likely and not value.startswith("-") and not _HOST.fullmatch(value):
                yield Span(start, stop, "shell")


def _is_secret(value: str, *, sure: bool) -> bool:
    shape = looks(value)
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
        short = len(option) == 2 or "a" in kind
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
    if shape in _NOT or (shape is Looks.NUMBER and kind != "u"):
        return
    if program in _PORTS and not (mixed(value) or random(value)):
        return
    yield Span(start, end, "curl" if program == "curl" else "shell")


# Programs whose option also means a port, a path or a project.
_PORTS = {
    "docker",
    "podman",
    "nerdctl",
    "helm",
    "az",
    "oc",
    "kubectl",
    "7z",
    "7za",
    "rar",
    "unzip",
    "zip",
}
_PORTS |= {"nuget", "dotnet", "cf", "ibmcloud", "unrar", "http", "https", "snmpwalk", "snmpget"}
