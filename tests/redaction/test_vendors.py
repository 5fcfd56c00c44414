"""The table of documented formats: an example of each is found, and each line is well formed."""

from __future__ import annotations

import functools
import re

import pytest

from holdfast.redact import Redactor
from holdfast.redact.vendors import CHARACTERS, PIECE, TokenFormat, formats, pattern

FORMATS = formats()


def example(form: str, seed: int = 0) -> str:
    """A token of this format, always the same for the same seed."""
    out, done, step = [], 0, seed * 7 + len(form)
    for piece in PIECE.finditer(form):
        out.append(form[done : piece.start()])
        done = piece.end()
        if piece[4] is not None:
            choices = piece[4].split("|")
            out.append(example(choices[step % len(choices)], seed))
            continue
        letters = _letters(piece[1])
        for n in range(int(piece[2])):
            step = (step * 1103515245 + 12345 + n) % (1 << 31)
            out.append(letters[(step >> 8) % len(letters)])
    return "".join([*out, form[done:]])


@functools.cache
def _letters(kind: str) -> str:
    plain = re.compile(CHARACTERS["a" if kind in "wb" else kind])
    return "".join(c for c in map(chr, range(48, 123)) if plain.match(c))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"{form.rule} {form.form}")
def test_an_example_of_each_form_is_found(form: TokenFormat) -> None:
    for seed in range(3):
        token = example(form.form, seed)
        assert re.fullmatch(pattern(form.form), token)
        for text in (f"see {token} there", f'["{token}", "eu"]', f"({token})", token):
            assert token not in Redactor().text(text)


def test_no_line_stands_twice_in_the_table() -> None:
    assert len({form.form for form in FORMATS}) == len(FORMATS)
    assert len({form.rule for form in FORMATS}) >= 85


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn-contrib-is-a-package and pat-answer-to-a-question",
        "the prefixes ghp_, xoxb- and AKIA are documented",
        "live_streaming_of_the_conference test_that_the_token_is_read",
        "re_export_everything_from_here npm_config_registry hf_transformers_cache_folder",
    ],
)
def test_words_that_begin_like_a_token_stay(text: str) -> None:
    assert Redactor().text(text) == text
