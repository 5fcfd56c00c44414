"""Kinds of secrets and of personal text, each as it stands in a text, and what of it must not be
seen again. All of them are made up; they are put together here so that no scanner of this source
takes one for real."""

from __future__ import annotations

import base64
import json
from typing import NamedTuple
from urllib.parse import quote

KNOWN = "Tr0ub4dor & 3, ünï/plus+"  # a secret that the host has registered
PERSON = "Wilhelmina Quux-Featherstone"  # a name that the host has registered


class Canary(NamedTuple):
    kind: str
    text: str
    needle: str


def _run(length: int, letters: str = "q7Zk2Vw9Xb4Np6Tg8Hc3Rm5") -> str:
    return (letters * (length // len(letters) + 1))[:length]


HEX = "3f9c1a7be2d40586"
_B64 = "Zm9vYmFyQmF6UXV4Kz"


def _made(kind: str, before: str, secret: str, after: str = "") -> Canary:
    return Canary(kind, before + secret + after, secret)


_JWT = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiJjYW5hcnkifQ." + _run(43)
_PEM = "\n".join([_run(64, "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC")] * 200)

SECRETS = [
    _made("openai", "key ", "sk-" + "proj-" + _run(40), " here"),
    _made("anthropic", "", "sk-" + "ant-api03-" + _run(60)),
    _made("openrouter", "use ", "sk-" + "or-v1-" + _run(48)),
    _made("github classic", "", "gh" + "p_" + _run(36)),
    _made("github fine", "", "github" + "_pat_" + _run(60)),
    _made("gitlab", "", "gl" + "pat-" + _run(20)),
    _made("gitlab runner", "", "gl" + "rt-" + _run(24)),
    _made("slack bot", "", "xox" + "b-1234567890-" + _run(24)),
    _made("slack app", "", "xap" + "p-1-A1-" + _run(30)),
    _made("slack webhook", "https://hooks.slack.com/services/", "T0AB/B0CD/" + _run(24)),
    _made("discord webhook", "https://discord.com/api/webhooks/", "123456789012345678/" + _run(60)),
    _made("discord bot", "", "M" + _run(25) + "." + _run(6) + "." + _run(30)),
    _made("telegram bot", "bot ", "123456789:" + "A" + _run(34)),
    _made("aws id", "", "AK" + "IA" + "Q7ZK2VW9XB4NP6TG"),
    _made("aws secret", "aws_secret_access_key = ", _run(40)),
    _made("aws session", "X-Amz-Security-Token: ", _run(80)),
    _made("presigned url", "https://b.s3.amazonaws.com/k?X-Amz-Signature=", HEX * 4, "&x=1"),
    _made("azure storage", "AccountName=a;AccountKey=", _run(86) + "==", ";EndpointSuffix=x"),
    _made("azure sas", "https://a.blob.core.windows.net/c?sv=2020&sig=", _run(43) + "%3D"),
    _made("google key", "", "AI" + "za" + _run(35)),
    _made("google oauth", "", "ya" + "29." + _run(60)),
    _made("google client", "", "GOC" + "SPX-" + _run(28)),
    _made("stripe", "", "sk_" + "live_" + _run(24)),
    _made("stripe webhook", "", "wh" + "sec_" + _run(32)),
    _made("huggingface", "", "h" + "f_" + _run(34)),
    _made("npm", "", "np" + "m_" + _run(36)),
    _made("npmrc", "//registry.example.org/:_authToken=", HEX * 2),
    _made("pypi", "", "py" + "pi-AgEIcHlwaS5vcmc" + _run(80)),
    _made("sendgrid", "", "S" + "G." + _run(22) + "." + _run(43)),
    _made("twilio", "", "S" + "K" + HEX * 2),
    _made("square", "", "sq0" + "csp-" + _run(43)),
    _made("shopify", "", "shp" + "at_" + HEX * 2),
    _made("digitalocean", "", "dop" + "_v1_" + HEX * 4),
    _made("databricks", "", "da" + "pi" + HEX * 2),
    _made("groq", "", "gs" + "k_" + _run(52)),
    _made("vault", "", "hv" + "s." + _run(90)),
    _made("mailchimp", "", HEX * 2 + "-us" + "12"),
    _made("mailgun", "", "ke" + "y-" + HEX * 2),
    _made("linear", "", "lin" + "_api_" + _run(40)),
    _made("docker", "", "dckr" + "_pat_" + _run(27)),
    _made("age", "", "AGE-" + "SECRET-KEY-1" + "Q7ZK2VW9XB4NP6TG" * 4),
    _made("jwt", "token is ", _JWT),
    _made("bearer", "Authorization: Bearer ", _run(30)),
    _made("basic", "Proxy-Authorization: Basic ", base64.b64encode(b"ann:s3cret-pw").decode()),
    _made("digest", "Authorization: Digest username=ann, response=", HEX),
    _made("cookie", "Cookie: sid=", _run(26), "; theme=dark"),
    _made("set-cookie", "Set-Cookie: session=", _run(26), "; HttpOnly"),
    _made("header", "X-Api-Key: ", "horse-staple-9"),
    _made("postgres url", "postgres://ann:", "p4ss-w0rd", "@db:5432/x"),
    _made("mongodb url", "mongodb+srv://ann:", "p%40ss9word", "@cluster0/x?y=1"),
    _made("redis url", "rediss://:", "p4ss-w0rd", "@cache:6379/0"),
    _made("amqp url", "amqp://ann:", "p4ss/w0rd", "@mq/vhost"),
    _made("token in url", "https://", "t0kenAsUser9", "@git.example.com/a.git"),
    _made("query token", "GET /a?page=2&access_token=", "abcDEF123ghi", "&x=1"),
    _made("odbc", "Driver=x;Server=db;Uid=ann;Pwd=", "p4ss-w0rd", ";"),
    _made("odbc braces", "Driver=x;PWD=", "{p4ss;w0rd}"[1:-1].join(("{", "}")), ";Uid=a"),
    _made("go dsn", "ann:", "p4ss-w0rd", "@tcp(db:3306)/x"),
    _made("oracle", "jdbc:oracle:thin:scott/", "t1ger-9", "@db:1521/x"),
    _made("environment", "A=1\nDB_PASSWORD=", "p4ss & (w0rd) 9", "\nB_C=2\nPATH=/usr/bin"),
    _made("export", "export OPENAI_API_KEY='", "abc-123-def", "'"),
    _made("joined name", "PGPASSWORD=", "hunter2hunter2", " psql"),
    _made("flag", "deploy --token ", "abc-123-def", " --force"),
    _made("json in text", '{"clientSecret": "', "a b c 9", '", "n": 1}'),
    _made("escaped json", '{\\"api_key\\": \\"', "abc-123-def", '\\"}'),
    _made("python repr", "Settings(password=b'", "p4ss-w0rd", "')"),
    _made("wrapped", "password=SecretStr('", "p4ss-w0rd", "')"),
    _made("yaml", "db:\n  password: ", "p4ss-w0rd", "\n  user: ann"),
    _made("yaml block", "db:\n  password: |\n    ", "p4ss-w0rd", "\n  user: ann"),
    _made("xml", "<db><password>", "p4ss-w0rd", "</password></db>"),
    _made("netrc", "machine h login ann password ", "p4ss-w0rd"),
    _made("pgpass", "db:5432:x:ann:", "p4ss-w0rd"),
    _made("curl", "curl -u ann:", "p4ss-w0rd", " https://h"),
    _made("mysql", "mysql -h db -p", "p4ss-w0rd", " x"),
    _made("sql", "CREATE USER a IDENTIFIED BY '", "p4ss-w0rd", "'"),
    _made("shadow", "root:", "$6$" + _run(16) + "$" + _run(60), ":19000:0"),
    _made(
        "private key",
        "-----BEGIN RSA PRIVATE" + " KEY-----\n",
        _PEM,
        "\n-----END RSA PRIVATE KEY-----",
    ),
    _made("cut key", "-----BEGIN OPENSSH PRIVATE" + " KEY-----\n", _run(70)),
    _made("putty key", "Private-Lines: 1\n", _run(64), "\nPrivate-MAC: x"),
    _made("otp", "otpauth://totp/x:ann?secret=", "JBSWY3DPEHPK3PXP", "&issuer=x"),
    _made("known", "it is ", KNOWN, "!"),
    Canary("known in json", json.dumps({"k": KNOWN}), "plus"),
    Canary("known in a url", f"https://h/?k={quote(KNOWN, safe='')}", "ub4dor"),
    Canary(
        "known in base64",
        "x " + base64.b64encode(f"user:{KNOWN}".encode()).decode(),
        base64.b64encode(f"user:{KNOWN}".encode()).decode()[8:24],
    ),
    Canary(
        "key in base64",
        base64.b64encode(("here: gh" + "p_" + _run(36)).encode()).decode(),
        base64.b64encode(("here: gh" + "p_" + _run(36)).encode()).decode()[12:40],
    ),
]

PERSONAL = [
    ("email", "write to ", "wilma.q+x@mail.example.org", " soon"),
    ("phone", "call ", "+44 20 7946 0958", " now"),
    ("phone", "call ", "(415) 555-2671", ""),
    ("card", "pay with ", "4111 1111 1111 1111", "."),
    ("card", "pay with ", "5555555555554444", ""),
    ("iban", "to ", "DE89 3704 0044 0532 0130 00", ""),
    ("account", "account number: ", "12345678", ""),
    ("ip", "from ", "203.0.113.77", " at"),
    ("ip", "from ", "2001:db8:85a3::8a2e:370:7334", " at"),
    ("mac", "nic ", "00:1B:44:11:3A:B7", ""),
    ("ssn", "ssn ", "536-90-4399", ""),
    ("national_id", "nino ", "AB 12 34 56 C", ""),
    ("national_id", "number ", "2 94 03 75 120 005 91", ""),
    ("national_id", "cf ", "RCCMNL83S18D969H", ""),
    ("passport", "passport no. ", "X4RTBPFW4", ""),
    ("driver_license", "driver's license: ", "D1234562", ""),
    ("birth", "date of birth: ", "1984-03-07", ""),
    ("birth", "born on ", "7 March 1984", ""),
    ("address", "address: ", "12 Rue Imaginaire, 75000 Paris", ""),
    ("address", "at ", "221 Baker Street", " today"),
    ("postcode", "postcode: ", "SW1A 1AA", ""),
    ("name", "full name: ", "Wilma Quux", ""),
    ("name", "dear Mrs. ", "Featherstone", ","),
    ("user", "username: ", "wilma_q_84", ""),
    ("location", "at ", "51.50354, -0.12768", ""),
    ("plate", "license plate ", "B-MW 4711", ""),
    ("vehicle", "VIN ", "1M8GDM9AXKP042788", ""),
    ("device", "IMEI: ", "490154203237518", ""),
    ("medical", "MRN: ", "A0099887", ""),
    ("wallet", "pay ", "0x52908400098527886E0F7030069857D2E4169EE7", ""),
    ("health", "diagnosis: ", "acute imaginitis", "."),
    ("salary", "salary: ", "84,500 EUR", ""),
    ("belief", "religion: ", "pastafarian", ""),
]
PERSONAL_TEXTS = [Canary(kind, before + it + after, it) for kind, before, it, after in PERSONAL]
PERSONAL_TEXTS.append(
    Canary("person", f"ask wilhelmina  quux-featherstone or {PERSON}!", "eatherston")
)

LOCAL = [
    Canary("home", "open /home/wilma/projects/x/main.py now", "wilma"),
    Canary("mac home", "in /Users/wilma/Desktop/a.txt", "wilma"),
    Canary("temporary", "wrote /tmp/wilma-7f3/out.log", "wilma-7f3"),
    Canary("windows", r"C:\Users\wilma\Documents\a.docx", "wilma"),
    Canary("windows escaped", r"C:\\Users\\wilma\\Documents\\a.docx", "wilma"),
    Canary("file url", "see file:///srv/wilma/site/a.html", "wilma"),
    Canary("share", r"\\fileserver\wilma\plans\a.txt", "wilma"),
    Canary("search path", "PATH=/usr/bin:/home/wilma/bin:/bin", "wilma"),
    Canary("blanks", "/Users/wilma q/My Documents/a.txt", "wilma"),
]
