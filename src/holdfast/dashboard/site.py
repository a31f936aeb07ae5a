"""The built page, as `make` leaves it in `static/`: one document and the files that it names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("static")
DOCUMENT = "index.html"
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
TYPES |= {".svg": "image/svg+xml", ".map": "application/json"}

# Only what this server serves is run, shown or asked, and nothing that is inline. Trusted types
# make the browser refuse to turn any text into markup.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page. Its name holds a digest of its content, so it never changes."""

    content: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Site:
    """The page: the document, and its files by name."""

    document: bytes
    assets: dict[str, Asset]

    @classmethod
    def find(cls, folder: Path = FOLDER) -> Site | None:
        """The page, or None where it was not built."""
        if not (folder / DOCUMENT).is_file():
            return None
        assets = {
            path.name: Asset(path.read_bytes(), TYPES[path.suffix])
            for path in sorted(folder.iterdir())
            if path.suffix in TYPES
        }
        return cls((folder / DOCUMENT).read_bytes(), assets)
