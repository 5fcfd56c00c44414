"""What we write in Harn's format is the same to the byte, whenever and wherever it is written."""

from __future__ import annotations

import pytest

from holdfast.bundle.harn import read_document, run_record
from tests.bundle.harn.golden.documents import HERE, MODES, documents


@pytest.mark.parity("harn-bundle", 114)
async def test_documents_of_every_mode_are_stable_to_the_byte() -> None:
    made = await documents()
    stored = {path.name: path.read_bytes() for path in HERE.glob("*.json")}
    assert sorted(stored) == sorted(made)
    for name, content in made.items():
        assert content == stored[name], f"{name} is another; see tests/bundle/harn/golden"
    assert await documents() == made


@pytest.mark.parity("harn-bundle", 114)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "id"), [("record", "run_1"), ("session", "customer-42")])
def test_a_stored_document_is_read_and_gives_its_record(mode: str, name: str, id: str) -> None:
    text = (HERE / f"{name}-{mode}.json").read_bytes()
    document = read_document(text, allow_secrets=mode == "local")
    assert document.encode() == text
    assert document.view.redaction.mode == mode
    assert run_record(document)["id"] == id
