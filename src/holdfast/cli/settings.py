"""Settings: config.toml, then HOLDFAST_* variables, then options; the later one wins.

`merge` is pure; `read` only fetches the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from holdfast.cli.quantities import duration_text, parse_size, size_text
from holdfast.model.addresses import server_address
from holdfast.model.errors import BadInput, Denied, from_os_error
from holdfast.model.home import home

ENGINES = ("auto", "gvisor", "runc", "process")
AUTHS = ("token", "none")
LOG_FORMATS = ("text", "json")
EGRESS = ("public", "any", "off")
SESSIONS = ("auto", "on", "off")
CHECKPOINTS = ("on", "off")
NETWORK = ("on", "off")


def _text(value: object) -> object:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text that is not empty")
    return value


def _port(value: object) -> object:
    is_number = isinstance(value, str) and value.isdecimal() and len(value) <= 9
    number = int(str(value)) if is_number else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= 65535:
        raise ValueError("expected a port from 0 to 65535")
    return number


def _size(value: object) -> object:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError("expected a number of bytes, e.g. 10000000000")
    return number


def _url(value: object) -> object:
    if not isinstance(value, str) or not value.startswith(("http://", "https://")):
        raise ValueError("expected an address like http://server-1:8787")
    try:
        server_address(value)
    except BadInput:
        raise ValueError("expected an address like http://server-1:8787") from None
    return value.rstrip("/")


def _origin(value: object) -> object:
    """An address without a path, as browsers tell the origin of a page."""
    parts = urlsplit(str(_url(value)).lower())
    port = parts.port  # raises ValueError for what is none
    if not parts.hostname or parts.path or parts.query or parts.fragment or parts.username:
        raise ValueError("expected an address without a path, like https://holdfast.example")
    usual = {"http": 80, "https": 443}[parts.scheme]
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{name}" + ("" if port in (None, usual) else f":{port}")


def _count(least: int) -> Callable[[object], object]:
    def parse(value: object) -> object:
        is_number = isinstance(value, str) and value.isdecimal() and len(value) <= 9
        number = int(str(value)) if is_number else value
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ValueError(f"expected a whole number, {least} or more")
        return number

    return parse


def _amount(value: object) -> object:
    """More than nothing, of anything: seconds, processors."""
    try:
        number = float(value) if isinstance(value, str | int | float) else 0.0
    except ValueError:
        number = 0.0
    if isinstance(value, bool) or not 0 < number < 1e9:
        raise ValueError("expected a number above 0")
    return number


def _hours(value: object) -> object:
    """Any number of them; 0 is never."""
    return 0.0 if str(value) in ("0", "0.0") else _amount(value)


def _bytes(least: int) -> Callable[[object], object]:
    def parse(value: object) -> object:
        number = parse_size(value) if isinstance(value, str) else value
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ValueError(f"expected a size of {least} bytes or more, e.g. 512MiB")
        return number

    return parse


def _one_of(*words: str) -> Callable[[object], object]:
    def parse(value: object) -> object:
        if value not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return value

    return parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing that can be set."""

    name: str
    parse: Callable[[object], object]
    default: Callable[[Mapping[str, str]], object]
    in_file: bool = True
    secret: bool = False
    unit: Literal["bytes", "seconds"] | None = None

    @property
    def variable(self) -> str:
        return f"HOLDFAST_{self.name.upper()}"


KNOWN = (
    Setting(
        name="home",
        parse=_text,
        default=lambda environ: str(home(environ)),
        in_file=False,  # libraries look for it too, and they do not read config.toml
    ),
    Setting(name="store", parse=_text, default=lambda environ: str(home(environ) / "store")),
    Setting(name="s3_endpoint", parse=_text, default=lambda _: None),
    Setting(name="cache_limit", parse=_size, default=lambda _: 10 * 1024**3, unit="bytes"),
    Setting(name="host", parse=_text, default=lambda _: "127.0.0.1"),
    Setting(name="port", parse=_port, default=lambda _: 8787),
    Setting(name="engine", parse=_one_of(*ENGINES), default=lambda _: "auto"),
    Setting(name="auth", parse=_one_of(*AUTHS), default=lambda _: "token"),
    Setting(name="sessions", parse=_one_of(*SESSIONS), default=lambda _: "auto"),
    Setting(name="session_idle_timeout", parse=_amount, default=lambda _: 3600.0, unit="seconds"),
    Setting(name="drill_every", parse=_hours, default=lambda _: 0.0),
    Setting(name="drill_most", parse=_count(1), default=lambda _: 10),
    Setting(name="drill_subjects", parse=_text, default=lambda _: "*"),
    Setting(name="advertise", parse=_url, default=lambda _: None),
    Setting(name="public_url", parse=_origin, default=lambda _: None),
    Setting(name="log_format", parse=_one_of(*LOG_FORMATS), default=lambda _: "text"),
    Setting(name="checkpoints", parse=_one_of(*CHECKPOINTS), default=lambda _: "on"),
    Setting(name="max_sandboxes", parse=_count(1), default=lambda _: 64),
    Setting(name="pool", parse=_count(0), default=lambda _: 1),
    Setting(name="tokens", parse=_text, default=lambda _: None),
    Setting(name="quota", parse=_count(0), default=lambda _: None),
    Setting(name="max_starting", parse=_count(1), default=lambda _: 4),
    Setting(name="max_waiting", parse=_count(0), default=lambda _: 16),
    Setting(name="max_wait", parse=_amount, default=lambda _: 30.0, unit="seconds"),
    Setting(name="network", parse=_one_of(*NETWORK), default=lambda _: "on"),
    Setting(name="egress", parse=_one_of(*EGRESS), default=lambda _: "public"),
    Setting(name="idle_timeout", parse=_amount, default=lambda _: 300.0, unit="seconds"),
    Setting(name="sandbox_memory", parse=_bytes(16 << 20), default=lambda _: 2 << 30, unit="bytes"),
    Setting(name="sandbox_disk", parse=_bytes(1 << 20), default=lambda _: 2 << 30, unit="bytes"),
    Setting(name="sandbox_cpus", parse=_amount, default=lambda _: 2.0),
    Setting(name="sandbox_processes", parse=_count(4), default=lambda _: 256),
    Setting(name="sandbox_seconds", parse=_amount, default=lambda _: 3600.0, unit="seconds"),
    Setting(name="token", parse=_text, default=lambda _: None, in_file=False, secret=True),
    Setting(name="key", parse=_text, default=lambda _: None, in_file=False, secret=True),
    Setting(
        name="key_file",
        parse=_text,
        default=lambda environ: str(home(environ) / "key"),
        in_file=False,
    ),
    Setting(name="passphrase", parse=_text, default=lambda _: None, in_file=False, secret=True),
    Setting(name="passphrase_file", parse=_text, default=lambda _: None, in_file=False),
    Setting(name="encryption_key_file", parse=_text, default=lambda _: None, in_file=False),
)


@dataclass(frozen=True, slots=True)
class Value:
    """What a setting is, and where that comes from."""

    setting: Setting
    value: object
    source: str

    @property
    def shown(self) -> object:
        """The value for eyes and logs: secrets stay secret."""
        return "(hidden)" if self.setting.secret and self.value is not None else self.value

    @property
    def told(self) -> str:
        """The same for people: `3600 (1h)` is what can be typed, and what it means."""
        shown = self.shown
        if shown is None:
            return "-"
        if isinstance(shown, float) and shown.is_integer():
            shown = int(shown)
        text = None
        if isinstance(shown, int | float) and self.setting.unit == "seconds":
            text = duration_text(shown)
        elif isinstance(shown, int) and self.setting.unit == "bytes":
            text = size_text(shown)
        return f"{shown} ({text})" if text else str(shown)


Settings = Mapping[str, Value]


def merge(
    file: Mapping[str, object],
    environ: Mapping[str, str],
    options: Mapping[str, object],
    path: str = "config.toml",
) -> Settings:
    """What is in force. Raises BadInput for an unknown key or a value that cannot be."""
    allowed = [setting.name for setting in KNOWN if setting.in_file]
    for key in file:
        if key not in allowed:
            close = difflib.get_close_matches(key, allowed, n=1)
            raise BadInput(
                f"unknown setting {key!r} in {path}",
                hint=f"did you mean {close[0]!r}?" if close else f"known: {', '.join(allowed)}",
            )
    values = {}
    for setting in KNOWN:
        value = Value(setting, setting.default(environ), "default")
        if setting.name in file:
            value = _parsed(setting, file[setting.name], path)
        # As everywhere in Unix, an empty variable is the same as none.
        if environ.get(setting.variable):
            value = _parsed(setting, environ[setting.variable], setting.variable)
        if options.get(setting.name) is not None:
            flag = "--" + setting.name.replace("_", "-")
            value = _parsed(setting, options[setting.name], flag)
        values[setting.name] = value
    return values


def _parsed(setting: Setting, given: object, source: str) -> Value:
    try:
        return Value(setting, setting.parse(given), source)
    except ValueError as error:
        shown = "" if setting.secret else f" {given!r:.60}"
        raise BadInput(
            f"{source}: bad value{shown} for {setting.name!r}", hint=str(error)
        ) from None


def config_path(environ: Mapping[str, str]) -> Path:
    """`holdfast/config.toml` in XDG_CONFIG_HOME, else in `~/.config`."""
    given = environ.get("XDG_CONFIG_HOME", "")
    # The base directory specification: a path that is not absolute is to be ignored.
    base = Path(given) if given.startswith("/") else Path.home() / ".config"
    return base / "holdfast" / "config.toml"


def read(environ: Mapping[str, str], options: Mapping[str, object]) -> Settings:
    """The settings in force on this machine. Raises BadInput, or Denied for an unreadable file."""
    path = config_path(environ)
    return merge(_file(path), environ, options, str(path))


def _file(path: Path) -> Mapping[str, object]:
    hint = "the file is TOML: key = value lines"
    try:
        content = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text", hint=hint) from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a directory", hint=hint) from None
    except PermissionError:
        raise Denied(
            f"{path} cannot be read",
            hint="make it readable, or set XDG_CONFIG_HOME to a directory of your own",
        ) from None
    except OSError as error:
        raise from_os_error(error, "reading the settings") from error
    import tomllib

    try:
        return tomllib.loads(content)
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply", hint=hint) from None
    except ValueError as error:  # not TOML; or a number of thousands of digits
        raise BadInput(f"{path}: {error}", hint=hint) from None
