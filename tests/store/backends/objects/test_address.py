"""Addresses: what names an object store, and what must never stand in one."""

from __future__ import annotations

import pytest

from holdfast.model.errors import BadInput, Unsupported
from holdfast.store.backends.objects.address import Address, cache_limit
from holdfast.store.backends.objects.clients import s3_settings
from holdfast.store.opening import open_store


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket",
        "s3://bucket/some/prefix",
        "s3://bucket/p?endpoint=http://127.0.0.1:9000&region=eu-west-1",
        "gs://bucket/prefix",
        "az://container/prefix?account=mine",
    ],
)
def test_an_address_is_written_as_it_was_read(url: str) -> None:
    assert str(Address.parse(url)) == url


def test_slashes_at_the_end_do_not_make_another_store() -> None:
    assert Address.parse("s3://bucket/p/") == Address.parse("s3://bucket/p")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://", "bucket"),
        ("s3:///prefix", "bucket"),
        ("s3://bucket?secret_access_key=hunter2", "secret_access_key"),
        ("gs://bucket?region=x", "region"),
        ("s3://key:hunter2@bucket/p", "credentials"),
        ("s3://bucket?endpoint=127.0.0.1:9000", "endpoint"),
    ],
)
def test_what_makes_no_sense_is_refused_without_repeating_secrets(url: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        open_store(url)
    assert caught.value.hint
    assert "hunter2" not in str(caught.value)


def test_the_address_wins_over_the_environment() -> None:
    environ = {
        "HOLDFAST_S3_ENDPOINT": "http://one:1/",
        "AWS_ENDPOINT_URL": "http://two:2",
        "AWS_DEFAULT_REGION": "eu-north-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    found = s3_settings(Address.parse("s3://b"), environ)
    assert found["endpoint"] == "http://one:1"
    assert found["region"] == "eu-north-1"
    assert (found["access_key_id"], found["secret_access_key"]) == ("key", "secret")
    url = "s3://b?endpoint=https://three&region=us-west-2"
    found = s3_settings(Address.parse(url), environ)
    assert (found["endpoint"], found["region"]) == ("https://three", "us-west-2")
    assert "endpoint" not in s3_settings(Address.parse("s3://b"), {})


@pytest.mark.parametrize("text", ["10 GB", "-1", "1e9"])
def test_a_limit_is_a_number_of_bytes(text: str) -> None:
    assert cache_limit({"HOLDFAST_CACHE_LIMIT": "1000"}) == 1000
    with pytest.raises(BadInput, match="HOLDFAST_CACHE_LIMIT"):
        cache_limit({"HOLDFAST_CACHE_LIMIT": text})


def test_other_kinds_of_addresses_are_refused_with_a_list() -> None:
    with pytest.raises(Unsupported, match="ftp") as caught:
        open_store("ftp://host/path")
    assert "s3://" in (caught.value.hint or "")
