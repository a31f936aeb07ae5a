"""What looks like a secret: every known format is found, wherever it stands."""

from __future__ import annotations

import re

import pytest

from holdfast.model.secrets import FORMATS, has_key, secret_value

KEYS = [
    "AKIA" + "A1" * 8,
    "ASIA" + "0" * 16,
    "AIza" + "a" * 35,
    *(f"gh{kind}_" + "a" * 36 for kind in "pousr"),
    "github_pat_" + "a" * 40,
    "sk_live_" + "a" * 16,
    "glpat-" + "a" * 20,
    "sk-" + "a" * 20,
    "xoxb-" + "1" * 10,
    "-----BEGIN RSA PRIVATE KEY-----",
    "eyJ" + "a" * 10 + ".eyJ" + "b" * 10 + "." + "c" * 10,
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_found_wherever_it_stands(key: str) -> None:
    for text in (key, f"words before {key} and after", f"{key[:3]} {key[:6]} {key}", "ä" + key):
        assert secret_value(text)
        assert has_key(text.encode())
    assert not secret_value(key[:-8])


def test_there_is_an_example_of_every_format() -> None:
    for literal, pattern in FORMATS:
        assert any(re.search(pattern, key.encode()) for key in KEYS), literal


@pytest.mark.parametrize("text", ["", "AKIA", "a_b-c A J", "eyJ", "sk-", "-----BEGIN ", "gh_" * 50])
def test_what_only_begins_like_a_key_is_none(text: str) -> None:
    assert not secret_value(text)
