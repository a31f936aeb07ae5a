"""Addresses and tokens that cannot be are refused in words, by whatever way they come."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from holdfast import BadInput, Sandbox
from holdfast.cli.main import cli
from holdfast.client.web import Web

ADDRESSES = [
    "nonsense",
    "ftp://127.0.0.1",
    "http://",
    "http://:80",
    "http://127.0.0.1:0",
    "http://127.0.0.1:99999",
    "http://127.0.0.1:abc",
    "http://[::1",
    "http://a b/",
    "http://ex..ample",
    "http://exa\0mple",
    "http://example\n",
    f"http://{'a' * 300}",
]
TOKENS = ["tök€n", "a\nb", "a\0b"]
FINE = "http://127.0.0.1:9"


@pytest.mark.parametrize("url", ADDRESSES)
async def test_impossible_addresses_are_refused(url: str) -> None:
    with pytest.raises(BadInput, match="not a server's address") as refused:
        await Sandbox.create(url)
    assert refused.value.hint == "e.g. http://127.0.0.1:8787"
    with pytest.raises(BadInput, match="not a server's address"):
        Web(url, None)


@pytest.mark.parametrize("token", TOKENS)
async def test_impossible_tokens_are_refused(token: str) -> None:
    with pytest.raises(BadInput, match="no header can carry") as refused:
        await Sandbox.create(FINE, token=token)
    assert token not in str(refused.value)
    with pytest.raises(BadInput, match="no header can carry"):
        await asyncio.to_thread(Web, FINE, token)


@pytest.mark.parametrize("url", [each for each in ADDRESSES if "\0" not in each])
@pytest.mark.parametrize("option", ["--advertise", "--public-url"])
def test_servers_do_not_start_under_them(url: str, option: str) -> None:
    if (option, url) == ("--advertise", "http://example\n"):
        url = "http://exam\nple"
    done = CliRunner().invoke(cli, ["serve", "--port", "0", option, url])
    assert isinstance(done.exception, BadInput), done.exception
    assert "expected an address" in str(done.exception.hint)
