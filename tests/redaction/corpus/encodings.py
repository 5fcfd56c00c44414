"""Secrets that stand in the text encoded, escaped, wrapped or interspersed."""

from __future__ import annotations

import base64
import html
import json
import quopri
from urllib.parse import quote, quote_plus

from tests.redaction.corpus.make import (
    Case,
    Cases,
    alnum,
    base64url,
    basic,
    checked,
    encoded,
    hexes,
    jwt,
    pem,
    plain_password,
    word,
    words_password,
)

CASES = Cases()
add = CASES.add

# --- percent signs -------------------------------------------------------------------------------

hard = "p@ss/" + words_password("percent", "&+") + ":%7"
add(
    "url-encoded",
    "query",
    "https://h.example/login?user=anna&password=§p§&next=%2Fhome\n",
    ["user=anna", "next=%2Fhome"],
    p=quote(hard, safe=""),
)
add(
    "url-encoded",
    "user-info",
    "postgres://app:§p§@db1:5432/shop\n",
    ["postgres://app:", "@db1:5432/shop"],
    p=quote("user" + hard, safe=""),
)
add(
    "url-encoded",
    "plus-for-blank",
    "login=anna&passphrase=§p§&ok=1",
    ["login=anna", "ok=1"],
    p=quote_plus("amber " + words_password("plus", "&") + " tree"),
)
add(
    "url-encoded",
    "twice",
    "https://h.example/r?url=https%3A%2F%2Fapi.example%2F%3Fapi_key%3D§k§%26page%3D2\n",
    ["https://h.example/r", "page%3D2"],
    k=alnum("twice", 32),
)
add(
    "url-encoded",
    "json-in-query",
    "https://h.example/x?data=%7B%22password%22%3A%22§p§%22%2C%22n%22%3A1%7D\n",
    ["https://h.example/x", "%22n%22%3A1"],
    p=quote(words_password("json-query", "&+"), safe=""),
)
add(
    "url-encoded",
    "every-character",
    "password=§p§&x=1",
    ["x=1"],
    p="".join(f"%{byte:02X}" for byte in plain_password("every").encode()),
)

# --- HTML ----------------------------------------------------------------------------------------

add(
    "html-entity",
    "input-value",
    '<input type="password" name="password" value="§p§">\n',
    ['type="password"'],
    p=html.escape("Tiger<" + words_password("input", "&") + '"9'),
)
add(
    "html-entity",
    "quot-json",
    '<div data-config="{&quot;apiKey&quot;:&quot;§k§&quot;,&quot;page&quot;:3}"></div>\n',
    ["data-config", "&quot;page&quot;:3"],
    k=alnum("quot", 32),
)
add(
    "html-entity",
    "numeric",
    "<td>Password</td><td>§p§</td>\n",
    ["<td>Password</td>"],
    p="".join(f"&#{ord(c)};" for c in plain_password("numeric")),
)
add(
    "html-entity",
    "ampersands-in-link",
    '<a href="https://h.example/dl?file=a.pdf&amp;token=§t§&amp;v=2">PDF</a>\n',
    ["file=a.pdf", "v=2", "PDF"],
    t=base64url("link", 40),
)
add(
    "html-entity",
    "markup-between",
    "<dt>Password</dt>\n<dd><code>§p§</code></dd>\n",
    ["<dt>Password</dt>"],
    p=plain_password("markup"),
)
add(
    "html-entity",
    "hidden-input",
    '<input type="hidden" name="csrf_token" value="§t§"><input name="city" value="Bern">\n',
    ["csrf_token", "Bern"],
    t=hexes("hidden", 64),
)
add(
    "html-entity",
    "meta-tag",
    '<meta name="api-token" content="§t§"><meta name="author" content="Anna">\n',
    ["api-token", 'content="Anna"'],
    t=alnum("meta", 40),
)

# --- base64 --------------------------------------------------------------------------------------


def overlapped(text: str, secret: str, width: int) -> tuple[str, tuple[str, ...]]:
    """The text in base64, wrapped, and those of its lines that tell enough of the secret."""
    whole = encoded(text)
    at = len(text[: text.index(secret)].encode())
    begin, end = at * 4 // 3, (at + len(secret.encode())) * 4 // 3
    lines, telling = [], []
    for start in range(0, len(whole), width):
        lines.append(whole[start : start + width])
        if min(end, start + width) - max(begin, start) >= 12:
            telling.append(lines[-1])
    return "\n".join(lines), tuple(telling)


add(
    "base64",
    "pair",
    "echo §b§ | base64 -d > .env\n",
    ["base64 -d > .env"],
    b=encoded(f"DB_PASSWORD={words_password('b64/pair')}\n"),
)
add(
    "base64",
    "json",
    "config (base64): §b§\n",
    [],
    b=encoded(json.dumps({"user": "anna", "password": words_password("b64/json")})),
)
add(
    "base64",
    "named",
    'password_base64: "§b§"\nport: 80\n',
    ["port: 80"],
    b=encoded(words_password("b64/named")),
)
add(
    "base64",
    "twice",
    "payload=§b§\n",
    [],
    b=encoded(encoded(f"api_token={alnum('b64/twice', 40)}\n")),
)
add(
    "base64",
    "utf-16",
    "powershell -NoProfile -EncodedCommand §b§\n",
    ["powershell -NoProfile"],
    b=base64.b64encode(
        f"$password = '{words_password('b64/utf16')}'; Connect-Server".encode("utf-16-le")
    ).decode(),
)
add(
    "base64",
    "url-safe-no-padding",
    "https://h.example/start?cfg=§b§\n",
    ["https://h.example/start"],
    b=base64.urlsafe_b64encode(json.dumps({"client_secret": alnum("b64/url", 32)}).encode())
    .decode()
    .rstrip("="),
)
add(
    "base64",
    "data-url",
    "data:application/json;base64,§b§\n",
    ["data:application/json;base64,"],
    b=encoded(json.dumps({"auth_token": alnum("b64/data", 40), "v": 1})),
)
add(
    "base64",
    "token-inside",
    "value: §b§\n",
    ["value"],
    b=encoded(checked("ghp_", "b64/inside")),
)
add(
    "base64",
    "private-key",
    "key: §b§\n",
    [],
    b=encoded(pem("EC PRIVATE KEY", "b64/pem", 120)),
)
secret = alnum("b64/wrapped", 90)
block, lines = overlapped(
    "\n".join(f"SETTING_{n}=on" for n in range(9)) + f"\nAPI_TOKEN={secret}\nREGION=eu\n",
    secret,
    76,
)
CASES.append(
    Case("base64", "wrapped-76", f"$ base64 .env\n{block}\n$\n", lines, ("$ base64 .env",))
)
secret = alnum("b64/mime", 70)
block, lines = overlapped(
    f"Hello,\n\nthe password is {secret}\n\nAnna\n" + "ps: soon\n" * 9, secret, 64
)
CASES.append(
    Case(
        "base64",
        "mail-part",
        f"Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n{block}\n",
        lines,
        ("Content-Transfer-Encoding: base64",),
    )
)
add(
    "base64",
    "hex-of-pair",
    "xxd -r -p <<< §b§\n",
    ["xxd -r -p"],
    b=f"password={plain_password('hexed')}".encode().hex(),
)
add(
    "base64",
    "userdata",
    'user_data = "§b§"\n',
    ["user_data"],
    b=encoded(f"#!/bin/sh\nexport DB_PASSWORD={plain_password('userdata')}\n"),
)

# --- escapes -------------------------------------------------------------------------------------

add(
    "json-in-json",
    "once",
    json.dumps({"status": 200, "body": '{"user":"anna","password":"§p§"}'}, ensure_ascii=False),
    ['"status": 200', "anna"],
    p=words_password("nested/once"),
)
add(
    "json-in-json",
    "twice",
    json.dumps(
        {"log": json.dumps({"body": '{"api_key":"§p§","page":2}'}, ensure_ascii=False)},
        ensure_ascii=False,
    ),
    ["log", "page"],
    p=alnum("nested/twice", 32),
)
add(
    "json-in-json",
    "env-file",
    json.dumps({"content": "MODE=prod\nDB_PASSWORD=§p§\nPORT=80\n"}, ensure_ascii=False),
    ["MODE=prod", "PORT=80"],
    p=words_password("nested/env"),
)
add(
    "json-in-json",
    "header-line",
    json.dumps(
        {"cmd": 'curl -H "Authorization: Bearer §t§" https://h.example'}, ensure_ascii=False
    ),
    ["https://h.example"],
    t=alnum("nested/header", 40),
)
add(
    "json-in-json",
    "private-key",
    json.dumps({"kid": "a1", "private_key": "§k§"}, ensure_ascii=False).replace(
        "§k§", "-----BEGIN PRIVATE KEY-----\\n§k§\\n-----END PRIVATE KEY-----\\n"
    ),
    ["a1"],
    k="\\n".join(alnum(f"nested/pem/{n}", 64) for n in range(3)),
)
add(
    "escapes",
    "quote-in-json",
    '{"password": "§p§", "user": "anna"}',
    ["anna"],
    p='Maple\\"' + plain_password("escaped") + "\\\\9x",
)
add(
    "escapes",
    "unicode-in-json",
    '{"password":"§p§","user":"anna"}',
    ["anna"],
    p="Amber\\u0026" + plain_password("unicode") + "\\u003c9",
)
add(
    "escapes",
    "python-bytes",
    'DEBUG send: b\'{"user": "anna", "password": "§p§"}\'\n',
    ["DEBUG send", "anna"],
    p=words_password("bytes"),
)
add(
    "escapes",
    "shell-backslash",
    "mysql -u root --password=§p§ shop\n",
    ["-u root", "shop"],
    p="Cedar\\&" + plain_password("shell-escape") + "\\!7",
)
add(
    "escapes",
    "yaml-double",
    'password: "§p§"\nuser: anna\n',
    ["user: anna"],
    p="Birch\\x21" + plain_password("yaml-escape"),
)
add(
    "escapes",
    "printf",
    "printf 'user=anna\\npassword=§p§\\n' > conf\n",
    ["user=anna", "> conf"],
    p=plain_password("printf"),
)
add(
    "escapes",
    "quoted-printable",
    "Content-Transfer-Encoding: quoted-printable\n\nPassword: §p§\nBis bald\n",
    ["quoted-printable", "Bis bald"],
    p=quopri.encodestring(("ü=" + plain_password("qp")).encode()).decode(),
)

# --- wrapped by a terminal -----------------------------------------------------------------------

token = checked("ghp_", "wrapped")
add(
    "line-wrap",
    "github-token",
    f"remote: https://x-access-token:{token[:22]}\n{token[22:]}@github.com/acme/shop\n".replace(
        token[:22], "§a§"
    ).replace(token[22:], "§b§"),
    ["https://x-access-token:", "@github.com/acme/shop"],
    a=token[:22],
    b=token[22:],
)
token = jwt("wrapped", iss="https://id.example.com", role="admin")
add(
    "line-wrap",
    "jwt",
    "Authorization: Bearer §a§\n§b§\n§c§\n\n< HTTP/1.1 200 OK\n",
    ["Authorization: Bearer", "HTTP/1.1 200 OK"],
    a=token[:57],
    b=token[57:120],
    c=token[120:],
)
add(
    "line-wrap",
    "long-value",
    "export SIGNING_SECRET=§a§\n§b§\n$ ls\n",
    ["SIGNING_SECRET", "$ ls"],
    a=hexes("wrap/a", 58),
    b=hexes("wrap/b", 38),
)
add(
    "line-wrap",
    "shell-continuation",
    "mysql --user=root \\\n  --password=\\\n§p§ \\\n  shop\n",
    ["--user=root", "shop"],
    p=plain_password("continuation"),
)
add(
    "line-wrap",
    "python-implicit",
    'API_TOKEN = (\n    "§a§"\n    "§b§"\n)\n',
    ["API_TOKEN"],
    a=alnum("implicit/a", 30),
    b=alnum("implicit/b", 30),
)
add(
    "line-wrap",
    "javascript-plus",
    "const clientSecret = '§a§' +\n  '§b§';\n",
    ["clientSecret"],
    a=alnum("plus/a", 24),
    b=alnum("plus/b", 24),
)
add(
    "line-wrap",
    "mail-quote",
    "> The key is\n> sk-ant-api03-§a§\n> §b§\nThanks!\n",
    ["Thanks!"],
    a=base64url("mailq/a", 50),
    b=base64url("mailq/b", 43) + "AA",
)

# --- colours and invisible characters ------------------------------------------------------------

RED, BOLD, END = "\x1b[31m", "\x1b[1;33m", "\x1b[0m"
add(
    "ansi",
    "name-and-value",
    f"{BOLD}password{END}: {RED}§p§{END}\n{BOLD}host{END}: db1\n",
    ["password", "host", "db1"],
    p=words_password("ansi", "!-+"),
)
add(
    "ansi",
    "within-token",
    f"token §a§{RED}§b§{END} accepted\n",
    ["accepted"],
    a=checked("ghp_", "ansi")[:20],
    b=checked("ghp_", "ansi")[20:],
)
add(
    "ansi",
    "grep-colour",
    f"\x1b[35m.env{END}:\x1b[1;31m\x1b[KDB_PASSWORD\x1b[m\x1b[K=§p§\n",
    [".env", "DB_PASSWORD"],
    p=plain_password("ansi/grep"),
)
add(
    "ansi",
    "jq-colour",
    f'{END}\x1b[34;1m"secret"{END}\x1b[1;39m:{END} \x1b[0;32m"§p§"{END}\n',
    ["secret"],
    p=words_password("ansi/jq"),
)
add(
    "ansi",
    "diff-colour",
    '\x1b[32m+password = "§p§"\x1b[m\n\x1b[31m-port = 1\x1b[m\n',
    ["password", "port = 1"],
    p=words_password("ansi/diff"),
)
add(
    "ansi",
    "hyperlink",
    "\x1b]8;;https://h.example/?access_token=§t§\x07open\x1b]8;;\x07\n",
    ["https://h.example/", "open"],
    t=base64url("ansi/link", 40),
)
add(
    "zero-width",
    "within-token",
    "ghp§a§\u200b§b§ works\n",
    ["works"],
    a="_" + alnum("zw/a", 18),
    b=alnum("zw/b", 18),
)
add(
    "zero-width",
    "within-name",
    "pass\u200bword: §p§\n",
    [],
    p=plain_password("zw/name"),
)
add(
    "zero-width",
    "word-joiner-in-value",
    "password=§p§\n",
    ["password"],
    p=word("zw1") + "\u2060" + plain_password("zw/joiner"),
)
add(
    "zero-width",
    "soft-hyphen",
    "api_key = §a§\u00ad§b§\n",
    ["api_key"],
    a=alnum("sh/a", 20),
    b=alnum("sh/b", 20),
)
add(
    "zero-width",
    "byte-order-mark",
    "\ufeffDB_PASSWORD=§p§\nPORT=1\n",
    ["PORT=1"],
    p=plain_password("bom"),
)
add(
    "zero-width",
    "direction-marks",
    "\u202apassword\u202c:\u200e §p§\n",
    ["password"],
    p=plain_password("marks"),
)
add(
    "zero-width",
    "full-width-colon",
    "Password：§p§\n",
    ["Password"],
    p=plain_password("full-width"),
)

# --- Basic credentials ---------------------------------------------------------------------------

add(
    "basic-auth",
    "yaml",
    "headers:\n  Authorization: Basic §b§\n  Accept: text/html\n",
    ["Accept: text/html"],
    b=basic("svc", words_password("basic/yaml")),
)
add(
    "basic-auth",
    "code",
    "headers: { 'Authorization': 'Basic §b§' }\n",
    ["Authorization"],
    b=basic("svc", plain_password("basic/code")),
)
add(
    "basic-auth",
    "short",
    "Authorization: Basic §b§\nHost: h\n",
    ["Host: h"],
    b=basic("a", "b" + plain_password("basic/short")[:4]),
)
add(
    "basic-auth",
    "named-only",
    'BASIC_AUTH="§u§:§p§"\n',
    ["BASIC_AUTH"],
    {"u": "svc"},
    p=words_password("basic/named"),
)
