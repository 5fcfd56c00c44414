"""What a terminal shows after a program wrote to it: enough of an xterm for line editors."""

from __future__ import annotations

import codecs
import re
import unicodedata

# A control sequence, an operating system command, another escape, or one character.
PART = re.compile(
    r"\x1b\[([0-9;?>]*)([@-~])|\x1b\].*?(?:\x07|\x1b\\)|\x1b[()].|\x1b[^\[\]()]|[^\x1b]", re.S
)
PARTIAL = re.compile(r"\x1b(?:\[[0-9;?>]*|\][^\x07\x1b]*|[()])?\Z")


class Emulator:
    """A screen with a cursor. `replies` has what the terminal has to answer the program."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines: list[list[str]] = [[]]  # those that were scrolled away included
        self.top = self.row = self.column = 0  # the first line on the screen, and the cursor
        self.replies = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def text(self) -> str:
        """All lines without the spaces at their ends, also those that were scrolled away."""
        return "".join("".join(line).rstrip() + "\n" for line in self.lines)

    def feed(self, data: bytes) -> None:
        text = self._rest + self._decoder.decode(data)
        cut = PARTIAL.search(text)
        self._rest = text[cut.start() :] if cut else ""
        for match in PART.finditer(text.removesuffix(self._rest)):
            if match[2]:
                self._control(match[1], match[2])
            elif not match[0].startswith("\x1b"):
                self._write(match[0])

    def _write(self, char: str) -> None:
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self._down()
        elif char == "\b":
            self.column = max(self.column - 1, 0)
        elif char >= " " and char != "\x7f":
            wide = unicodedata.east_asian_width(char) in "WF"
            if self.column + wide >= self.columns:
                self._down()
                self.column = 0
            for cell in (char, "")[: 1 + wide]:
                self._put(cell)

    def _put(self, cell: str) -> None:
        line = self._line()
        line += " " * (self.column + 1 - len(line))
        line[self.column] = cell
        self.column += 1

    def _line(self) -> list[str]:
        self.lines += [[] for _ in range(self.row + 1 - len(self.lines))]
        return self.lines[self.row]

    def _down(self) -> None:
        self.row += 1
        self._line()
        self.top = max(self.top, self.row - self.rows + 1)

    def _control(self, parameters: str, final: str) -> None:
        if parameters.startswith(("?", ">")):
            return
        numbers = [int(one or 0) for one in parameters.split(";")]
        count = max(numbers[0], 1)
        match final:
            case "A":
                self.row = max(self.row - count, self.top)
            case "B":
                self.row = min(self.row + count, self.top + self.rows - 1)
            case "C":
                self.column = min(self.column + count, self.columns - 1)
            case "D":
                self.column = max(self.column - count, 0)
            case "G":
                self.column = count - 1
            case "H":
                self.row = self.top + count - 1
                self.column = max(numbers[-1], 1) - 1 if len(numbers) > 1 else 0
            case "K" if not numbers[0]:
                del self._line()[self.column :]
            case "K":
                self._line()[:] = []
            case "J":
                self._erase(numbers[0])
            case "n" if numbers[0] == 6:
                self.replies += f"\x1b[{self.row - self.top + 1};{self.column + 1}R"
            case _:  # colours and the like
                pass

    def _erase(self, what: int) -> None:
        if what:
            self.lines[self.top :] = []
        del self._line()[self.column :]
        del self.lines[self.row + 1 :]
