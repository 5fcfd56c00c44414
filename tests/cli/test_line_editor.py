"""`holdfast chat` in a terminal with line editing, on a screen that is read as a person sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.line_editor import tail

from .agents import shop_folder
from .conftest import Cli
from .programs import WITHOUT
from .terminal import READY, Terminal

__all__ = ["shop_folder"]

UP, LEFT = "\x1b[A", "\x1b[D"
NEWLINE = "\x1b\r"  # Alt-Enter, and Esc and then Enter
AGENT = '''
from holdfast import Agent, Harness, tool
from holdfast.models.scripted import Say, ScriptedModel, Use

ANSWER = """# Order 7

It is **late**. See [the order](https://shop.example/7) or <b>call</b>.

```python
ship("7")
```

| item | sent |
|------|------|
| lamp | yes  |
"""

@tool
def noisy() -> str:
    """Print."""
    print("printed by a tool")
    return "done"

def repeated(call):
    return Say(call.messages[-1].content[0].text)

MODEL = ScriptedModel.by_input(
    {
        "order": Say(ANSWER),
        "noisy": [Say("", calls=[Use("noisy")]), Say("All done.")],
        "slow": Say(chunks=["begun\\n- one\\n", "ended"], delay=3600.0),
        "": repeated,
    },
    ref="scripted/desk",
)

def desk(**settings):
    settings.setdefault("default_model", MODEL)
    agent = Agent("Desk", instructions="Help.", tools=[noisy])
    return Harness(agent, ttl=1.0, **settings)
'''


@pytest.fixture
def desk(url: str, shop_folder: Path) -> tuple[str, ...]:
    """The command that chats with an agent that repeats what it is told."""
    (shop_folder / "desk.py").write_text(AGENT)
    return ("chat", "s", "--agent", "desk:desk", "--store", url)


def messages(cli: Cli, url: str) -> list[str]:
    events = cli("show", "s", "--all", "--json", "--store", url).json["events"]
    return [one["data"]["text"] for one in events if one["kind"] == "message.received"]


def test_input_can_be_edited_recalled_and_have_several_lines(
    desk: tuple[str, ...], shop_folder: Path, cli: Cli, url: str
) -> None:
    with Terminal(*desk, cwd=shop_folder, columns=80) as terminal:
        terminal.until_screen(READY)
        terminal.press("helo" + LEFT + "l")
        terminal.until_screen("> hello")
        terminal.press("\r")
        terminal.until_screen("> hello\nhello\n")
        terminal.press("one" + NEWLINE + "two")
        terminal.until_screen("> one\n  two")
        terminal.press("\r")
        terminal.until_screen("one two" + READY)
        terminal.press("\x1b[200~a\nb\x1b[201~")  # a paste
        terminal.until_screen("> a\n  b")
        terminal.press("\r")
        terminal.until_screen("a b" + READY)
        terminal.press(UP * 8)
        terminal.until_screen("a b\n> hello\n")
        terminal.press("\x03")  # clears the input
        terminal.until_screen("a b" + READY)
        terminal.press("\x04")
        assert terminal.end() == 0
    assert messages(cli, url) == ["hello", "one\ntwo", "a\nb"]


def test_earlier_messages_of_the_session_can_be_recalled(
    desk: tuple[str, ...], shop_folder: Path, cli: Cli, url: str
) -> None:
    for typed in ("where is it", UP):
        with Terminal(*desk, cwd=shop_folder, columns=80) as terminal:
            terminal.until_screen("/quit; //", READY)
            terminal.press(typed)
            terminal.until_screen("> where is it")
            terminal.press("\r")
            terminal.until_screen("\nwhere is it" + READY)
            terminal.press("\x04")
            assert terminal.end() == 0
    assert messages(cli, url) == ["where is it"] * 2
    assert not list(Path.home().rglob("*history*"))


def test_a_message_is_shown_as_markdown_and_hides_nothing(
    desk: tuple[str, ...], shop_folder: Path
) -> None:
    with Terminal(*desk, cwd=shop_folder, columns=80) as terminal:
        terminal.until_screen(READY)
        terminal.type("order")
        shown = "\n".join(terminal.until_screen("lamp", READY, without="working"))
        terminal.press("\x04")
        assert terminal.end() == 0
    assert "It is late." in shown
    assert "https://shop.example/7" in shown
    assert "<b>call</b>" in shown
    assert "**" not in shown
    assert "```" not in shown


def test_a_message_that_arrives_is_shown_with_a_spinner_until_it_is_aborted(
    desk: tuple[str, ...], shop_folder: Path
) -> None:
    with Terminal(*desk, cwd=shop_folder, columns=80, rows=24) as terminal:
        terminal.until_screen(READY)
        terminal.type("slow")
        terminal.until_screen("> slow\nbegun\n- one\n", " working" + READY)
        terminal.type("hello")  # is queued
        terminal.until_screen(" working, 1 queued" + READY)
        terminal.press("\x03")
        terminal.until_screen(
            "aborting the run; Ctrl-C again ends the chat", "[aborted]", "\nhello" + READY
        )
        terminal.until_screen(READY, without="working")
        terminal.press("\x03")
        assert terminal.end() == 130


def test_what_a_tool_prints_is_above_the_prompt(desk: tuple[str, ...], shop_folder: Path) -> None:
    with Terminal(*desk, cwd=shop_folder, columns=80) as terminal:
        terminal.until_screen(READY)
        terminal.type("noisy")
        lines = terminal.until_screen("printed by a tool", "All done." + READY)
        terminal.press("\x04")
        assert terminal.end() == 0
    assert "printed by a tool" in lines


def test_a_simple_terminal_gets_plain_lines(desk: tuple[str, ...], shop_folder: Path) -> None:
    with Terminal(*desk, cwd=shop_folder, term="dumb") as terminal:
        terminal.until("\n> ")
        terminal.press("order\n")
        terminal.until("It is **late**.")
        terminal.until("> ")
        terminal.press("\x04")
        assert terminal.end() == 0


def test_without_prompt_toolkit_lines_are_plain(desk: tuple[str, ...], shop_folder: Path) -> None:
    start = "import sys\nfrom holdfast.cli import main\nsys.exit(main(sys.argv[1:]))"
    program = ("-c", WITHOUT.format(names={"prompt_toolkit"}) + start)
    with Terminal(*desk, cwd=shop_folder, program=program) as terminal:
        terminal.until("\n> ")
        terminal.press("order\n")
        terminal.until("It is **late**.")
        terminal.until("> ")
        terminal.press("\x04")
        assert terminal.end() == 0


def test_the_end_of_a_long_message_fits_the_terminal() -> None:
    assert tail("a\nb\nc", 80, 2) == ["b", "c"]
    assert tail("x" * 25, 11, 9) == ["x" * 10, "x" * 10, "x" * 5]
    assert tail("日本語", 5, 9) == ["日本", "語"]
    assert tail("a\x1b[2J\n\nb", 80, 9) == ["a\\x1b[2J", "", "b"]
