"""AWS profiles: the credentials that Amazon's own tools keep in a user's files."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.errors import BadInput, Denied, NotFound, from_os_error

# A profile with one of these has no keys of its own: somebody has to be asked for them.
_ELSEWHERE = ("role_arn", "sso_session", "sso_start_url", "credential_process", "login_session")


def profile(environ: Mapping[str, str]) -> dict[str, str]:
    """What the profile in force says: AWS_PROFILE, or `default` where there is one. Raises NotFound
    when the one that is named is not there, and Denied when its keys cannot be had from a file."""
    named = environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE")
    name = named or "default"
    kept = _file(environ, "AWS_SHARED_CREDENTIALS_FILE", "credentials")
    config = _file(environ, "AWS_CONFIG_FILE", "config")
    sections = [(config, name if name == "default" else f"profile {name}"), (kept, name)]
    found = [dict(file[section]) for file, section in sections if file.has_section(section)]
    if named and not found:
        raise NotFound(
            f"there is no AWS profile {name!r}",
            hint="AWS_PROFILE names one of ~/.aws/credentials or ~/.aws/config",
        )
    said = {key: value for each in found for key, value in each.items()}
    if named and "aws_access_key_id" not in said and any(key in said for key in _ELSEWHERE):
        raise Denied(
            f"the AWS profile {name!r} gets its keys from elsewhere, which Holdfast cannot",
            hint='eval "$(aws configure export-credentials --format env)" puts them where it looks',
        )
    return said


def _file(environ: Mapping[str, str], variable: str, name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, default_section="\0", strict=False)
    home = environ.get("HOME")
    given = environ.get(variable)
    if not given and not home:
        return parser
    path = Path(given).expanduser() if given else Path(str(home)) / ".aws" / name
    try:
        parser.read_string(path.read_text("utf-8"), str(path))
    except FileNotFoundError:
        return parser
    except OSError as error:
        raise from_os_error(error, "reading AWS profiles") from error
    except (configparser.Error, UnicodeDecodeError):
        # Neither repeated nor chained: what is in the file is secret.
        raise BadInput(f"{path} cannot be read as a file of AWS profiles") from None
    return parser
