"""One run of the command line: its options, settings and store, and the way it speaks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.cli.settings import Settings
    from holdfast.store import Store
    from holdfast.store.backends.contract import Backend
    from holdfast.store.slots import Secret


class Invocation:
    """What a verb is given. Heavy things are imported when they are first asked for."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.environ = environ
        self.options: dict[str, object] = {}
        self.json = False

    def settings(self) -> Settings:
        """The settings in force: config.toml, then the environment, then the options."""
        from holdfast.cli.settings import read

        return read(self.environ, self.options)

    @contextmanager
    def store(self, create: bool = False) -> Iterator[Store]:
        """The store that this run works on. One that somebody named must exist, unless `create`;
        the default one is Holdfast's own and is made when it is missing."""
        setting = self.settings()["store"]
        made = create or setting.source == "default" or str(setting.value).startswith("memory:")
        with self.open(str(setting.value), create=made) as store:
            yield store

    def open(
        self,
        url: str,
        create: bool,
        *,
        encrypt: bool = False,
        shared: bool = False,
        secret: Secret | None = None,
        asking: bool = True,
    ) -> Store:
        """Open a store. With `asking`, a person is asked for the passphrase of an encrypted one, if
        nothing else tells it."""
        from holdfast.cli.secret import ask
        from holdfast.store import open_store

        _check_address(url)
        return open_store(
            url,
            create=create,
            encrypt=encrypt,
            shared=shared,
            secret=secret,
            ask=ask if asking else None,
            environ=self.environ_for_stores(),
        )

    @contextmanager
    def backend(self) -> Iterator[Backend]:
        """The place of the store that this run works on, which must exist: for what is done to it
        while the store itself stays shut."""
        from holdfast.store.opening import open_backend

        url = str(self.settings()["store"].value)
        _check_address(url)
        with closing(open_backend(url, create=False, environ=self.environ_for_stores())) as backend:
            yield backend

    def environ_for_stores(self) -> Mapping[str, str]:
        """The environment, with what the settings say of object stores."""
        settings = self.settings()
        found = [settings[name] for name in ("s3_endpoint", "cache_limit")]
        given = {one.setting.variable: str(one.value) for one in found if one.value is not None}
        return {**self.environ, **given}

    def show(self, document: object, people: Callable[[], str]) -> None:
        """Write data to stdout: the document as JSON, or the text for people."""
        if self.json:
            import json

            from holdfast.view.values import plain

            text = json.dumps(document, indent=2, default=plain)
        else:
            text = people()
        if text:
            sys.stdout.write(text + "\n")

    def tell(self, message: str) -> None:
        """Write a message for people to stderr; programs that asked for JSON are spared."""
        if not self.json:
            sys.stdout.flush()  # so that the two streams keep their order on one terminal
            print(message, file=sys.stderr)

    def doubt(self, store: Store) -> None:
        """Say that what is shown of a store may not be all, when some of its log is lost."""
        from holdfast.view.words import printable

        found = store.noticed()
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            self.warn(
                "the store's log is damaged, so something may be missing here:"
                f" {printable(found[0].what)}{more}; `holdfast verify` says what to do"
            )

    def warn(self, message: str) -> None:
        """Write a warning to stderr, whoever is reading."""
        print(f"warning: {message}", file=sys.stderr)


def _check_address(url: str) -> None:
    """Raise BadInput for what can be no store's address, or is a file."""
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    from holdfast.model.errors import BadInput

    hint = "a path, file:///path, s3://bucket/prefix, gs://, az:// or memory://"
    try:
        path = unquote(urlsplit(url).path) if "://" in url else str(Path(url).expanduser())
        possible = b"\0" not in os.fsencode(path)
    except (ValueError, RuntimeError) as error:  # RuntimeError: the home of an unknown user
        raise BadInput(f"not a store's address: {url!r}: {error}", hint=hint) from None
    if not possible:
        raise BadInput(f"not a store's address: {url!r}: no path has a zero byte", hint=hint)
    if os.path.isfile(os.path.expanduser(url.removeprefix("file://"))):
        raise BadInput(f"{url} is a file, not a store", hint="a store is a directory")
