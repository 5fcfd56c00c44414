"""What redaction costs: on ordinary text, on lines of a log, and on text made to be slow."""

from __future__ import annotations

import time
from pathlib import Path

from holdfast.redact import Redactor

from .measure import Bar, Figure, Result
from .settings import Settings

ROOT = Path(__file__).parent.parent
LINE = 'INFO request_id=7f3c status=200 path=/v1/orders user=42 took=12ms msg="sent" tokens=118'
# One for each reader of a format: what, repeated, makes it look hardest.
HOSTILE = {
    "names": "key key ",
    "pairs": 'password="',
    "prose": "password is ",
    "code": "auth('a', ",
    "tables": "a,password\n",
    "named values": "name: password\n",
    "SQL": "insert into t (password) values (",
    "HTTP": "Cookie: a=b; ",
    "shell": "curl -u a ",
    "URLs": "https://a:b/",
    "vendors": "sk-a",
    "blocks": "eyJaaaaaa.",
    "layers": "%41&amp;\\n",
    "base64": "QUJD",
}


def redaction(settings: Settings) -> Result:
    """Redaction of 1 MiB of code and documents, of log lines, and of hostile text."""
    size = 1 << 20 if settings.rounds > 3 else 1 << 15
    result = Result(name="redact", title="redaction")
    ordinary = ordinary_text(size)
    throughput, lines, growth = [], [], []
    for _ in range(settings.rounds):
        settings.step("ordinary text")
        throughput.append(len(ordinary) / (1 << 20) / seconds(ordinary))
        lines.append(per_line() * 1e6)
    result.figures.append(Figure(name="ordinary text", unit="MiB/s", values=throughput))
    result.figures.append(Figure(name="a line of a log", unit="µs", values=lines))
    for name, unit in HOSTILE.items():
        settings.step(f"hostile text: {name}")
        quarter, whole = (seconds(unit * (part // len(unit))) for part in (size // 4, size))
        result.figures.append(Figure(name=f"hostile: {name}", unit="s", values=[whole]))
        growth.append(whole / quarter)
    result.bars += [
        Bar(name="ordinary text", way="least", bar=0.5, values=throughput, unit="MiB/s"),
        Bar(name="a line of a log", way="most", bar=150.0, values=lines, unit="µs"),
        Bar(name="four times the hostile text", way="most", bar=6.0, values=growth),
    ]
    return result


def ordinary_text(size: int) -> str:
    """Documents and code of this repository, which talk about tokens and keys."""
    found, left = [], size
    for path in (*sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("src/holdfast/**/*.py"))):
        text = path.read_text(encoding="utf-8")[:left]
        found.append(text)
        left -= len(text)
        if left <= 0:
            break
    return "".join(found)


def seconds(text: str) -> float:
    """How long a fresh redactor takes, in time of this process."""
    redactor = Redactor()
    begun = time.process_time()
    redactor.text(text)
    return max(time.process_time() - begun, 1e-6)


def per_line(count: int = 2_000) -> float:
    redactor = Redactor()
    lines = [f"{LINE} n={n}" for n in range(count)]
    begun = time.process_time()
    for line in lines:
        redactor({"message": line, "level": "info"})
    return (time.process_time() - begun) / count
