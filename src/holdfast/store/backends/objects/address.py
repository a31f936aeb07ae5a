"""Addresses of object stores: from a URL and the environment to a bucket. Secrets are never in it.

`s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`. Credentials come from the
environment, as each vendor's own tools read them, or from the machine's role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from holdfast.model.errors import BadInput
from holdfast.model.home import home
from holdfast.store.backends.objects.backend import ObjectBackend
from holdfast.store.backends.objects.bucket import Bucket
from holdfast.store.backends.objects.cache import LIMIT, Cache

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az")
_OPTIONS = {"s3": ("endpoint", "region"), "gs": (), "az": ("endpoint", "account")}
_PATIENT, _QUICK = 60.0, 4.0  # seconds: for a pack, and for a sign of life
# The pauses between tries are ours (bucket.py); this is for what a client knows better.
_RETRIES = {"max_retries": 2}


@dataclass(frozen=True, slots=True)
class Address:
    """Where an object store is; `str` gives a URL that names it again."""

    scheme: str
    bucket: str
    prefix: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL; raises BadInput, without repeating what may be a secret."""
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise BadInput(
                f"a {parts.scheme}:// address with credentials in it",
                hint="give them in the environment, e.g. AWS_ACCESS_KEY_ID",
            )
        if not parts.netloc:
            raise BadInput(
                f"{parts.scheme}:// needs a bucket", hint=f"{parts.scheme}://bucket/prefix"
            )
        allowed = _OPTIONS[parts.scheme]
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        for name in options:
            if name not in allowed:
                known = f"it takes {' and '.join(allowed)}" if allowed else "it takes none"
                raise BadInput(
                    f"unknown option {name!r} of a {parts.scheme}:// address", hint=known
                )
        return cls(parts.scheme, parts.netloc, parts.path.strip("/"), options)

    def __str__(self) -> str:
        path = f"/{self.prefix}" if self.prefix else ""
        query = f"?{urlencode(self.options, safe=':/')}" if self.options else ""
        return f"{self.scheme}://{self.bucket}{path}{query}"


def open_objects(url: str, environ: Mapping[str, str], *, create: bool = True) -> ObjectBackend:
    """The store at a URL, with a cache in HOLDFAST_HOME."""
    address = Address.parse(url)
    limit = cache_limit(environ)
    folder = home(environ) / "cache"

    def open_bucket() -> Bucket:
        return Bucket(connect(address, environ), quick=connect(address, environ, _QUICK))

    def open_cache(store_id: str) -> Cache:
        return Cache(Path(folder) / store_id, limit)

    return ObjectBackend(str(address), open_bucket, open_cache, create=create)


def cache_limit(environ: Mapping[str, str]) -> int:
    """How many bytes the cache of one store may have: HOLDFAST_CACHE_LIMIT, in bytes."""
    text = environ.get("HOLDFAST_CACHE_LIMIT")
    if not text:
        return LIMIT
    if not text.isdecimal():
        raise BadInput(
            f"HOLDFAST_CACHE_LIMIT is {text!r}", hint="a number of bytes, e.g. 10000000000"
        )
    return int(text)


def connect(address: Address, environ: Mapping[str, str], timeout: float = _PATIENT) -> ObjectStore:
    """A client of the object store, whose requests end after so many seconds."""
    from obstore.store import AzureStore, GCSStore, S3Store

    prefix = address.prefix or None
    retry: Any = _RETRIES
    if address.scheme == "gs":
        return GCSStore(address.bucket, prefix=prefix, retry_config=retry)
    settings = s3_settings(address, environ) if address.scheme == "s3" else dict(address.options)
    plain = settings.get("endpoint", "").startswith("http://")
    client: Any = {"allow_http": plain, "timeout": f"{timeout:g}s", "connect_timeout": "4s"}
    if address.scheme == "az":
        config: Any = {
            name: value
            for name, value in (
                ("account_name", settings.get("account")),
                ("endpoint", settings.get("endpoint")),
            )
            if value
        }
        return AzureStore(
            address.bucket, prefix=prefix, client_options=client, retry_config=retry, **config
        )
    return S3Store(
        address.bucket, prefix=prefix, client_options=client, retry_config=retry, **settings
    )


def s3_settings(address: Address, environ: Mapping[str, str]) -> dict[str, Any]:
    """What an S3 client is told beside the credentials. The address wins over the environment."""
    endpoint = (
        address.options.get("endpoint")
        or environ.get("HOLDFAST_S3_ENDPOINT")
        or environ.get("AWS_ENDPOINT_URL_S3")
        or environ.get("AWS_ENDPOINT_URL")
    )
    region = (
        address.options.get("region")
        or environ.get("AWS_REGION")
        or environ.get("AWS_DEFAULT_REGION")
        or "us-east-1"
    )
    settings: dict[str, Any] = {"region": region}
    for ours, theirs in (
        ("access_key_id", "AWS_ACCESS_KEY_ID"),
        ("secret_access_key", "AWS_SECRET_ACCESS_KEY"),
        ("session_token", "AWS_SESSION_TOKEN"),
    ):
        if environ.get(theirs):
            settings[ours] = environ[theirs]
    if endpoint:
        if not endpoint.startswith(("http://", "https://")):
            raise BadInput(
                f"not an endpoint: {endpoint!r}", hint="it begins with http:// or https://"
            )
        settings["endpoint"] = endpoint.rstrip("/")
        # Servers at an address of their own seldom have a name for each bucket.
        settings["virtual_hosted_style_request"] = False
    return settings
