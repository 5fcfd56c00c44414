"""Secrets and signatures, as the Standard Webhooks specification defines them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from holdfast import InvalidValue
from holdfast.environment import wall_clock
from holdfast.webhooks import new_secret, signature
from holdfast.webhooks.signatures import headers


def test_a_signature_is_the_one_of_the_reference_implementation() -> None:
    secret, now = new_secret(), datetime.now(UTC)
    made = signature([secret], "msg_1", int(now.timestamp()), b'{"a":1}')
    assert made == Webhook(secret).sign("msg_1", now, '{"a":1}')


def test_each_valid_secret_signs() -> None:
    secrets, now = [new_secret(), new_secret()], wall_clock() // 1000
    sent = headers(secrets, "msg_1", now, b"{}")
    for secret in secrets:
        assert Webhook(secret).verify(b"{}", sent) == {}


@pytest.mark.parametrize(
    ("change", "body"),
    [
        ({"webhook-id": "msg_2"}, b"{}"),
        ({"webhook-timestamp": "1"}, b"{}"),
        ({"webhook-signature": "v1,AAAA"}, b"{}"),
        ({"webhook-signature": "v2,AAAA v1a,AAAA"}, b"{}"),
        ({}, b'{"more": 1}'),
    ],
)
def test_a_forged_delivery_is_refused(change: dict[str, str], body: bytes) -> None:
    secret = new_secret()
    sent = headers([secret], "msg_1", wall_clock() // 1000, b"{}") | change
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body, sent)


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", "secret", "whsec_****", "whsec_" + base64.b64encode(b"short").decode()],
)
def test_a_bad_secret_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        signature([secret], "msg_1", 1, b"")
    assert not secret or secret.removeprefix("whsec_") not in str(caught.value) or len(secret) < 7
