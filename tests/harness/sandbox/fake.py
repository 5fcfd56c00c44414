"""A program that stands in for `docker`: it writes down each call, remembers which containers
there are, fails when told to, and runs the words of an `exec` on this machine, as children of
nobody, as those of the daemon are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PROGRAM = """#!{python}
import json, os, subprocess, sys
from pathlib import Path

here, words = Path(__file__).parent, sys.argv[1:]
with (here / "log.jsonl").open("a") as log:
    log.write(json.dumps(words) + "\\n")

def end(code, text=""):
    if text:
        print(text, file=sys.stderr)
    sys.exit(code)

def box(name):
    return here / f"{{name}}.json"

def values(option, words):
    return [words[n + 1] for n, word in enumerate(words) if word == option]

answers = here / "answers.json"
played = json.loads(answers.read_text()) if answers.exists() else {{}}
if words[0] in played:
    end(*played[words[0]])

if words[0] == "create":
    name = values("--name", words)[0]
    if box(name).exists():
        end(1, f'Error response from daemon: Conflict. The container name "/{{name}}" is '
               'already in use by container "0123".')
    fields = dict(field.partition("=")[::2] for field in values("--mount", words)[0].split(","))
    env = dict(pair.split("=", 1) for pair in values("--env", words))
    box(name).write_text(json.dumps({{"running": False, "root": fields["source"], "env": env}}))
elif words[0] in ("start", "stop", "rm"):
    name = words[-1]
    if not box(name).exists():
        end(1, f"Error response from daemon: No such container: {{name}}")
    if words[0] == "rm":
        box(name).unlink()
    else:
        box(name).write_text(json.dumps({{**json.loads(box(name).read_text()),
                                         "running": words[0] == "start"}}))
elif words[0] == "exec":
    n, options, flags = 1, [], []
    while words[n].startswith("--"):
        flags.append(words[n])
        if words[n] == "--interactive":
            n += 1
        else:
            options += words[n : n + 2]
            n += 2
    name = words[n]
    if not box(name).exists() or not json.loads(box(name).read_text())["running"]:
        end(1, f"Error response from daemon: container {{name}} is not running")
    state = json.loads(box(name).read_text())
    env = {{"PATH": os.environ["PATH"], **state["env"]}}
    for each in values("--env", options):
        variable, given, value = each.partition("=")
        env[variable] = value if given else os.environ[variable]
    cwd = (values("--workdir", options) or ["/workspace"])[0]
    cwd = cwd.replace("/workspace", state["root"], 1)
    stdin = None if "--interactive" in flags else subprocess.DEVNULL
    ran = subprocess.run(words[n + 1 :], env=env, cwd=cwd, stdin=stdin, start_new_session=True)
    sys.exit(ran.returncode if ran.returncode >= 0 else 128 - ran.returncode)
else:
    end(125, f"unknown command {{words[0]}}")
"""


class FakeDocker:
    """Where the program is, and what it was told."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.path = str(folder / "docker")
        Path(self.path).write_text(PROGRAM.format(python=sys.executable))
        Path(self.path).chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        log = self._folder / "log.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    @property
    def did(self) -> list[str]:
        """The names of the calls, one after the other."""
        return [call[0] for call in self.calls]

    @property
    def containers(self) -> dict[str, bool]:
        """Those there are, and whether they run."""
        return {
            path.stem: json.loads(path.read_text())["running"]
            for path in self._folder.glob("*-*.json")
        }

    def play(self, **answers: tuple[int, str]) -> None:
        """End these calls with a code and a text."""
        (self._folder / "answers.json").write_text(json.dumps(answers))

    def forget(self, name: str) -> None:
        """A container is gone, by other hands than ours."""
        (self._folder / f"{name}.json").unlink()


def values(option: str, call: list[str]) -> list[Any]:
    return [call[n + 1] for n, word in enumerate(call) if word == option]
