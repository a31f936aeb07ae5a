"""Addresses of object stores: from a URL and the environment to a bucket. Secrets are never in it.

`s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`. Credentials come from the
environment, as each vendor's own tools read them, or from the machine's role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from holdfast.model.errors import BadInput
from holdfast.model.home import home
from holdfast.store.backends.objects.backend import ObjectBackend
from holdfast.store.backends.objects.bucket import Bucket
from holdfast.store.backends.objects.cache import LIMIT, Cache
from holdfast.store.backends.objects.clients import QUICK, connect

SCHEMES = ("s3", "gs", "az")
_OPTIONS = {"s3": ("endpoint", "region"), "gs": ("endpoint",), "az": ("endpoint", "account")}


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
                raise BadInput(
                    f"unknown option {name!r} of a {parts.scheme}:// address",
                    hint=f"it takes {' and '.join(allowed)}",
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
        return Bucket(connect(address, environ), quick=connect(address, environ, QUICK))

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
