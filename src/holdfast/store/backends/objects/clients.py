"""Clients of object stores: what each vendor's is told. An address wins over the environment, and
what neither says is left to the client, which asks the machine's role or identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import BadInput
from holdfast.store.backends.objects.profiles import profile

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from holdfast.store.backends.objects.address import Address

Environ = Mapping[str, str]
PATIENT, QUICK = 60.0, 4.0  # seconds: for a pack, and for a sign of life
# The pauses between tries are ours (bucket.py); this is for what a client knows better.
_RETRIES: Any = {"max_retries": 2}


def connect(address: Address, environ: Environ, timeout: float = PATIENT) -> ObjectStore:
    """A client of the object store, whose requests end after so many seconds."""
    from obstore.store import AzureStore, GCSStore, S3Store

    kinds: Any = {
        "s3": (S3Store, s3_settings),
        "gs": (GCSStore, gcs_settings),
        "az": (AzureStore, azure_settings),
    }
    kind, tell = kinds[address.scheme]
    settings = tell(address, environ)
    where = settings.get("endpoint") or settings.get("base_url") or ""
    plain = where.startswith("http://")
    client: Any = {"allow_http": plain, "timeout": f"{timeout:g}s", "connect_timeout": "4s"}
    found: ObjectStore = kind(
        address.bucket,
        prefix=address.prefix or None,
        client_options=client,
        retry_config=_RETRIES,
        **settings,
    )
    return found


def s3_settings(address: Address, environ: Environ) -> dict[str, Any]:
    """For Amazon S3, and for servers that speak like it."""
    keys = {
        "access_key_id": environ.get("AWS_ACCESS_KEY_ID"),
        "secret_access_key": environ.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": environ.get("AWS_SESSION_TOKEN"),
    }
    said = {} if keys["access_key_id"] and not environ.get("AWS_PROFILE") else profile(environ)
    if not keys["access_key_id"]:
        keys = {name: said.get(f"aws_{name}") for name in keys}
    endpoint = (
        address.options.get("endpoint")
        or environ.get("HOLDFAST_S3_ENDPOINT")
        or environ.get("AWS_ENDPOINT_URL_S3")
        or environ.get("AWS_ENDPOINT_URL")
        or said.get("endpoint_url")
    )
    region = (
        address.options.get("region")
        or environ.get("AWS_REGION")
        or environ.get("AWS_DEFAULT_REGION")
        or said.get("region")
        or "us-east-1"
    )
    settings: dict[str, Any] = {"region": region, **_given(keys)}
    if endpoint:
        settings["endpoint"] = _endpoint(endpoint)
        # Servers at an address of their own seldom have a name for each bucket.
        settings["virtual_hosted_style_request"] = False
    return settings


def azure_settings(address: Address, environ: Environ) -> dict[str, Any]:
    """For Azure Blob Storage. A connection string, as Azure's own tools take it, says the rest."""
    text = environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    said = {
        name.strip().lower(): value.strip()
        for name, equals, value in (each.partition("=") for each in text.split(";"))
        if equals
    }
    found = {
        "account_name": address.options.get("account")
        or environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        or environ.get("AZURE_STORAGE_ACCOUNT")
        or said.get("accountname"),
        "account_key": environ.get("AZURE_STORAGE_ACCOUNT_KEY")
        or environ.get("AZURE_STORAGE_KEY")
        or said.get("accountkey"),
        "sas_token": environ.get("AZURE_STORAGE_SAS_TOKEN") or said.get("sharedaccesssignature"),
    }
    endpoint = (
        address.options.get("endpoint")
        or environ.get("AZURE_STORAGE_ENDPOINT")
        or said.get("blobendpoint")
    )
    settings = _given(found)
    if endpoint:
        settings["endpoint"] = _endpoint(endpoint)
    if not settings.get("account_name"):
        raise BadInput(
            f"which Azure account the container {address.bucket} is in is not said",
            hint="set AZURE_STORAGE_ACCOUNT_NAME, or add ?account=NAME to the address",
        )
    return settings


def gcs_settings(address: Address, environ: Environ) -> dict[str, Any]:
    """For Google Cloud Storage, or an emulator of it, which asks for no signature."""
    settings = _given(
        {
            "service_account": environ.get("GOOGLE_SERVICE_ACCOUNT")
            or environ.get("GOOGLE_SERVICE_ACCOUNT_PATH"),
            "service_account_key": environ.get("GOOGLE_SERVICE_ACCOUNT_KEY"),
            "application_credentials": environ.get("GOOGLE_APPLICATION_CREDENTIALS"),
        }
    )
    emulator = environ.get("STORAGE_EMULATOR_HOST")
    endpoint = address.options.get("endpoint") or emulator
    if endpoint:
        settings["base_url"] = _endpoint(endpoint)
    if emulator:
        settings["skip_signature"] = True
        # Which the client minds when it reads; to write it wants a token all the same.
        settings["credential_provider"] = _no_token
    return settings


def _no_token() -> dict[str, Any]:
    return {"token": "none", "expires_at": None}


def _given(settings: Mapping[str, str | None]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value}


def _endpoint(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise BadInput(f"not an endpoint: {text!r}", hint="it begins with http:// or https://")
    return text.rstrip("/")
