"""The turn that every workload writes: four entries, 3 KB of texts in all.

A question, a model's tool call, the tool's result, the answer. Each contestant gets
the same texts in the shape that its own contract asks for.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast import NewEvent

_LINE = (
    "order parcel refund invoice customer address payment morning courier damaged warehouse "
    "replacement tracking number label weekend delivery window signature return policy"
)
_WORDS = _LINE.split()
VARIANTS = 16


class Turn(Struct, frozen=True):
    """The texts of one turn."""

    question: str
    thought: str
    call: str
    arguments: dict[str, Any]
    result: dict[str, Any]
    answer: str

    def events(self) -> list[NewEvent]:
        """As four new events of a log."""
        usage = {"input": 1840, "output": 212}
        call = {"id": self.call, "name": "lookup", "arguments": self.arguments}
        return [
            NewEvent.of("message.received", {"text": self.question}),
            NewEvent.of(
                "message.completed", {"text": self.thought, "calls": [call], "usage": usage}
            ),
            NewEvent.of("tool.finished", {"call": self.call, "result": self.result}),
            NewEvent.of("message.completed", {"text": self.answer, "usage": usage}),
        ]

    def payloads(self) -> list[tuple[str, dict[str, Any]]]:
        """As kinds and payloads, for a floor that writes what `events` would."""
        usage = {"input": 1840, "output": 212}
        call = {"id": self.call, "name": "lookup", "arguments": self.arguments}
        return [
            ("message.received", {"text": self.question}),
            ("message.completed", {"text": self.thought, "calls": [call], "usage": usage}),
            ("tool.finished", {"call": self.call, "result": self.result}),
            ("message.completed", {"text": self.answer, "usage": usage}),
        ]

    def items(self) -> list[dict[str, Any]]:
        """As four input items of the OpenAI Agents SDK."""
        return [
            {"role": "user", "content": self.question},
            {
                "type": "function_call",
                "call_id": self.call,
                "name": "lookup",
                "arguments": f'{{"order": "{self.arguments["order"]}"}} {self.thought}',
            },
            {
                "type": "function_call_output",
                "call_id": self.call,
                "output": str(self.result["text"]),
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": self.answer}],
            },
        ]


def _text(start: int, size: int) -> str:
    words: list[str] = []
    length = 0
    while length < size:
        word = _WORDS[(start * 7 + len(words) * (start + 3)) % len(_WORDS)]
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:size]


def _turn(number: int) -> Turn:
    return Turn(
        question=_text(number, 500),
        thought=_text(number + 1, 300),
        call=f"call_{number:08}",
        arguments={"order": f"A-{number:06}", "fields": ["status", "items"], "detail": True},
        result={"text": _text(number + 2, 1100), "rows": 3, "more": False},
        answer=_text(number + 3, 820),
    )


TURNS = tuple(_turn(number) for number in range(VARIANTS))


def turn(number: int) -> Turn:
    """The texts of turn `number`; prepared beforehand, so that making them is not timed."""
    return TURNS[number % VARIANTS]
