"""How much harm a call could do: guessed, shown to the person who decides, and never decisive."""

from __future__ import annotations

import contextlib
import shlex
from typing import Any, get_args

import pytest

from holdfast import Agent, tool
from holdfast.client import Client
from holdfast.harness.tools import Risk
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.values.risk import DECLARED, TEXT, level

from .scene import serving

DESTRUCTIVE = [
    "rm -rf /",
    "rm -fr ~",
    "sudo eval rm -rf /",
    "timeout 5 ssh host rm -rf /srv",
    "sudo -u bash rm -rf /",
    "sudo sh -c 'bash -c \"rm -rf /\"'",
    "rm -r -f /",
    "rm --recursive --force /",
    "sudo rm -rf /*",
    "sudo -u root rm -rf /*",
    "rm -rf -- /",
    "rm -rf *",
    "cd / && rm -rf ./*",
    "rm -R $HOME",
    'rm -rf "${HOME}"/',
    "rm -rf /etc",
    "rm -rf //usr//",
    "rm -rf ../..",
    "rm -rf --no-preserve-root /x",
    "'rm' \"-rf\" '/'",
    r"\rm -rf /",
    "/bin/rm -rf /",
    "ls; rm -rf /",
    "ls\nrm -rf ~/",
    "true && rm -rf / || echo no",
    "yes | rm -r /",
    "(rm -rf /)",
    "if true; then rm -rf /; fi",
    "echo $(rm -rf /)",
    'echo "now `rm -rf /`"',
    "bash -c 'rm -rf /'",
    'env A=1 sh -c "sudo rm -rf ~"',
    "ssh host 'rm -rf /'",
    "bash <<EOF\nrm -rf /\nEOF",
    "find / -name x | xargs rm -rf /",
    "find / -delete",
    "find ~ -exec rm {} +",
    "A=1 B=2 rm -rf /",
    "rm -rf 'open /",
    "chmod -R 777 /",
    "psql -c 'DROP TABLE orders'",
    "echo 'drop  database shop' | mysql",
    "psql -c 'drop schema public cascade'",
    "mkfs.ext4 /dev/sda1",
    "mkfs -t ext4 /dev/sda1",
    "dd if=/dev/zero of=/dev/sda bs=1M",
    "shutdown -h now",
    "sudo reboot",
    "halt",
    "systemctl poweroff",
    "init 0",
    "cat image > /dev/nvme0n1",
    "cat image >>/dev/sdb",
    "cat image | tee /dev/sda",
    ":(){ :|:& };:",
]
HIGH = [
    "ls",
    "",
    "rm file.txt",
    "rm -rf build",
    "rm -rf ./build/*",
    "rm -rf /tmp/work",
    "rm -rf ~/project/node_modules",
    "rm -f *",
    "echo rm -rf /",
    "grep -ri 'drop table' src",
    "dd if=disk.img of=copy.img",
    "echo hi > /dev/null",
    "git commit -m 'shutdown handling'",
    "cat notes-about-reboot.txt",
    "find . -name '*.pyc' -delete > found; ls /",
    "python -c 'print(1)'",
]


@pytest.mark.parity("computeragent", "S5")
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        *(("bash", {"command": command}, "destructive") for command in DESTRUCTIVE),
        *(("bash", {"command": command}, "high") for command in HIGH),
        ("Bash", {"command": "ls", "description": "instead of rm -rf /"}, "high"),
        ("shell", "rm -rf /", "destructive"),
        ("run_command", {"cmd": ["rm", "-rf", "/"]}, "destructive"),
        ("run_command", {"cmd": ["echo", "rm -rf /; ls"]}, "high"),
        ("mcp__box__execute", {"anything": "rm -rf /"}, "destructive"),
        ("run_sql", {"sql": "DROP TABLE orders"}, "destructive"),
        ("run_sql", {"sql": "SELECT 1"}, "medium"),
        ("Write", {"content": "rm -rf /"}, "medium"),
        ("edit", {}, "medium"),
        ("MultiEdit", {}, "medium"),
        ("WebFetch", {"url": "x"}, "medium"),
        ("websearch", {"query": "drop table"}, "medium"),
        ("Task", {}, "medium"),
        ("skill", {}, "medium"),
        ("mcp__github__get_issue", {}, "medium"),
        ("mcp__files__read", {}, "medium"),
        ("frobnicate", {}, "medium"),
        ("", None, "medium"),
        ("delete", {"path": "x"}, "high"),
        ("rm", {}, "high"),
        ("deleteFile", {}, "high"),
        ("mcp__files__remove_folder", {}, "high"),
        ("Read", {}, "low"),
        ("read_file", {"path": "rm -rf /"}, "low"),
        ("Glob", {}, "low"),
        ("grep", {"pattern": "drop table"}, "low"),
        ("LS", {}, "low"),
        ("tree", {}, "low"),
        ("list_and_delete", {}, "high"),
    ],
)
def test_a_call_has_a_level(name: str, arguments: Any, expected: str) -> None:
    assert level(name, arguments) == expected


@pytest.mark.parity("computeragent", "S5")
def test_what_a_tool_says_of_itself_counts() -> None:
    assert set(DECLARED) == {*get_args(Risk)}
    for declared, expected in DECLARED.items():
        assert level("frobnicate", {"command": "ls"}, declared) == expected
    assert level("delete", {}, "safe") == "low"
    assert level("read", {}, "destructive") == "destructive"
    assert level("build", {"command": "rm -rf /"}, "execute") == "destructive"
    assert level("build", {"command": "make"}, "execute") == "high"


def test_no_command_is_too_odd() -> None:
    odd: list[Any] = [None, 7, [], [1], {"command": None}, {"command": {"x": "rm -rf /"}}]
    odd += [{"command": text} for text in ("'", '"', "\\", "$(", "((((", "\0", "é\u2028" * 99)]
    odd += [{"command": "$(" * 500 + ")" * 500}, {"command": "a;" * TEXT}]
    odd += [
        {"command": word * 20_000} for word in ("sudo ", "a", "sudo ssh 'x ' ", ": ()", "drop ")
    ]
    nested = "ls x"
    for _ in range(6):  # each shell of a level has the same words
        nested = "sudo " + "sh " * 19 + shlex.quote(nested)
    for arguments in [*odd, {"command": nested}]:
        assert level("bash", arguments) == "high"


def clerk() -> Agent:
    @tool(approval="ask")
    def bash(command: str) -> str:
        """Run a command."""
        raise AssertionError("nobody allowed it")

    @tool(approval="ask", risk="read")
    def delete(path: str) -> str:
        """Not what its name says."""
        return f"read {path}"

    return Agent("clerk", instructions="Obey.", tools=[bash, delete])


def script() -> ScriptedModel:
    both = [Use("bash", command="sudo rm -fr /*"), Use("delete", path="x")]
    return ScriptedModel.by_input({"Go": [Say("", calls=both), "Done."]})


@pytest.mark.parity("computeragent", "S5")
async def test_whoever_decides_is_shown_the_risk_and_decides() -> None:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(
            serving(agents=[clerk()], harness={"default_model": script()})
        )
        client = await stack.enter_async_context(Client(api.url, "ann@acme"))
        session = await client.get_or_create("one")
        result = await session.send("Go")
        assert [(ask.tool, ask.risk) for ask in result.pending] == [
            ("bash", "destructive"),
            ("delete", "low"),
        ]
        assert await session.pending() == [*result.pending]
        shown = await api("GET", "/sessions/one/pending")
        assert [item["risk"] for item in shown["items"]] == ["destructive", "low"]
        everywhere = (await client.pending()).items
        assert [(item.session, item.risk) for item in everywhere] == [
            ("one", "destructive"),
            ("one", "low"),
        ]
        display = await session.display.get()
        assert [item.risk for item in display.pending.values()] == ["destructive", "low"]
        # However small the risk, nothing is done unasked; however great, a person decides.
        assert (await session.status()).pending == 2
        await session.deny(result.pending[0].id)
        await session.approve(result.pending[1].id)
        assert (await session.wait()).text == "Done."
