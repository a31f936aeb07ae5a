"""What the clients of object stores are told: keys from the environment or a profile, endpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.errors import BadInput, Denied, NotFound
from holdfast.store import open_store
from holdfast.store.backends.objects.address import Address
from holdfast.store.backends.objects.clients import (
    azure_settings,
    connect,
    gcs_settings,
    s3_settings,
)
from holdfast.testing.servers import ACCESS, SECRET, Server

CREDENTIALS = """
[default]
aws_access_key_id = first
aws_secret_access_key = one%two

[work]
aws_access_key_id=second
aws_secret_access_key=three
aws_session_token=four
"""
CONFIG = """
[default]
region = eu-south-1

[profile work]
region = eu-north-1
endpoint_url = http://office:1/

[profile sso]
sso_start_url = https://somewhere
region = eu-west-1
"""

S3 = Address.parse("s3://bucket")
Files = Callable[..., dict[str, str]]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A home with Amazon's files, as an environment."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws/config").write_text(CONFIG)
    return lambda **more: {"HOME": str(tmp_path), **more}


def test_the_default_profile(files: Files) -> None:
    assert s3_settings(S3, files()) == {
        "region": "eu-south-1",
        "access_key_id": "first",
        "secret_access_key": "one%two",
    }


def test_a_profile_by_name(files: Files) -> None:
    assert s3_settings(S3, files(AWS_PROFILE="work")) == {
        "region": "eu-north-1",
        "access_key_id": "second",
        "secret_access_key": "three",
        "session_token": "four",
        "endpoint": "http://office:1",
        "virtual_hosted_style_request": False,
    }


def test_files_elsewhere(files: Files, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("[x]\naws_access_key_id=a\naws_secret_access_key=b\n")
    environ = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "mine"), "AWS_PROFILE": "x"}
    assert s3_settings(S3, files(**environ))["access_key_id"] == "a"


def test_keys_in_the_environment_win_and_are_never_mixed(files: Files) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "secret"}
    found = s3_settings(S3, files(**keys))
    assert (found["access_key_id"], found["region"]) == ("own", "us-east-1")
    found = s3_settings(S3, files(**keys, AWS_PROFILE="work"))
    assert (found["access_key_id"], found["region"]) == ("own", "eu-north-1")
    assert "session_token" not in found


def test_without_any_of_it_the_machines_role_is_asked(tmp_path: Path) -> None:
    assert s3_settings(S3, {"HOME": str(tmp_path)}) == {"region": "us-east-1"}
    assert s3_settings(S3, {}) == {"region": "us-east-1"}


def test_profiles_that_cannot_be_used_are_told_in_words(files: Files, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nobody"):
        s3_settings(S3, files(AWS_PROFILE="nobody"))
    with pytest.raises(Denied, match="elsewhere") as caught:
        s3_settings(S3, files(AWS_PROFILE="sso"))
    assert "export-credentials" in (caught.value.hint or "")
    (tmp_path / ".aws/credentials").write_text("aws_secret_access_key = hunter2\n")
    with pytest.raises(BadInput) as bad:
        s3_settings(S3, files())
    assert "hunter2" not in str(bad.value)


def test_a_profile_opens_a_real_store(
    s3: Server, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HOLDFAST_S3_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("AWS_PROFILE", "weed")
    (tmp_path / "keys").write_text(
        f"[weed]\naws_access_key_id={ACCESS}\naws_secret_access_key={SECRET}\n"
        f"endpoint_url={s3.endpoint}\n"
    )
    with open_store(f"s3://bucket/{prefix}") as store, store.draft("state/x") as draft:
        draft.put("part", b"by a profile")
        draft.commit()
        assert store.read("state/x", "part") == b"by a profile"


AZURE = Address.parse("az://container/prefix")


def test_azure_from_variables_or_from_a_connection_string() -> None:
    text = (
        "DefaultEndpointsProtocol=http;AccountName=mine;AccountKey=a2V5==;"
        "BlobEndpoint=http://127.0.0.1:10000/mine/;"
    )
    told = {
        "account_name": "mine",
        "account_key": "a2V5==",
        "endpoint": "http://127.0.0.1:10000/mine",
    }
    assert azure_settings(AZURE, {"AZURE_STORAGE_CONNECTION_STRING": text}) == told
    variables = {"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=x"}
    assert azure_settings(AZURE, variables) == {"account_name": "other", "sas_token": "sv=1&sig=x"}
    named = Address.parse("az://container?account=third&endpoint=https://here")
    assert azure_settings(named, variables)["account_name"] == "third"
    with pytest.raises(BadInput, match="account") as caught:
        azure_settings(AZURE, {})
    assert "AZURE_STORAGE_ACCOUNT_NAME" in (caught.value.hint or "")


def test_google_from_variables_or_from_an_emulators() -> None:
    google = Address.parse("gs://bucket/prefix")
    file = {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json"}
    assert gcs_settings(google, file) == {"application_credentials": "/key.json"}
    emulator = {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:4443"}
    told = gcs_settings(google, emulator)
    assert told.pop("credential_provider")()["token"]
    assert told == {"base_url": "http://127.0.0.1:4443", "skip_signature": True}
    assert gcs_settings(google, {}) == {}


@pytest.mark.parametrize(
    ("url", "environ"),
    [
        ("s3://bucket/p", {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}),
        ("s3://bucket/p?endpoint=http://127.0.0.1:9", {}),
        ("az://container/p?account=mine", {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}),
        ("az://container/p", {"AZURE_STORAGE_ACCOUNT": "x", "AZURE_STORAGE_SAS_TOKEN": "sig=x"}),
        ("gs://bucket/p", {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"}),
        ("gs://bucket/p?endpoint=https://here", {}),
    ],
)
def test_every_kind_of_client_takes_what_it_is_told(url: str, environ: dict[str, str]) -> None:
    """obstore refuses options that it does not know."""
    assert connect(Address.parse(url), environ).prefix == "p"
