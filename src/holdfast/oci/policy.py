"""The policy: what the node's administrator allows. Only root may have written it."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.model.errors import BadInput, Denied, HoldfastError, from_os_error
from holdfast.oci import constants

Mode = Literal["local", "shared", "store"]
LONGEST_LINE = 30  # the kernel follows 40 links, and CRIU goes from each increment to the next


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """spec/container-v1.md, "Policy". The defaults hold on a node without a policy file."""

    mode: Mode = "local"
    modes: tuple[Mode, ...] = ()
    checkpoint_path: str = constants.DEFAULT_CHECKPOINT_PATH
    shared_path: str | None = None
    shared_workdir: str | None = None
    allowed_paths: tuple[str, ...] = ()
    store: str | None = None
    lease_wait: float = 10
    work_path: str = constants.DEFAULT_WORK_PATH
    ledger_path: str = constants.DEFAULT_LEDGER_PATH
    opt_in: Literal["any", "annotation"] = "any"
    names: Literal["any", "annotation"] = "any"
    keep: int = 2
    line: int = 8
    zstd: Literal["older", "all", "never"] = "older"
    on_crash: Literal["restore", "cold"] = "restore"
    restore_limit: int = 3
    on_failure: Literal["cold", "fail"] = "cold"
    checkpoint_seconds: float = 300
    restore_seconds: float = 60
    lazy: Literal["auto", "never"] = "auto"
    lazy_bytes: int = 64 * 1024 * 1024
    log_bytes: int = 16 * 1024 * 1024
    checkpoint_options: tuple[str, ...] = ("--file-locks",)
    log: str = constants.DEFAULT_LOG_PATH


def policy_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the policy is, or would be."""
    return Path(environ.get(constants.POLICY_VARIABLE) or constants.DEFAULT_POLICY_PATH)


def read_policy(path: Path) -> Policy:
    """The policy in a file, or the defaults when there is none; raises Denied or BadInput."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Policy()
    except OSError as error:
        raise from_os_error(error, "reading the policy") from error
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text") from None
    check_root_owned(path)
    try:
        policy = msgspec.convert(tomllib.loads(text), Policy)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadInput(
            f"{path}: {error}", hint="docs/guides/containers.md lists the policy's keys"
        ) from None
    _check(policy, path)
    return policy


def check_root_owned(path: Path) -> None:
    """Raise Denied when anyone but root could have written a file or put another in its place."""
    real = path.resolve()
    for each in (real, *real.parents):
        info = each.stat()
        sticky_folder = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
        if info.st_uid != 0 or (info.st_mode & 0o022 and not sticky_folder):
            raise Denied(
                f"{path} is not used: someone besides root may write {each}",
                hint=f"chown root {each}; chmod go-w {each}",
            )


def _check(policy: Policy, path: Path) -> None:
    """Raise BadInput for values that the types allow and nobody can mean."""
    wrong: list[str] = []
    for name in ("checkpoint_path", "shared_path", "work_path", "ledger_path", "shared_workdir"):
        value = getattr(policy, name)
        if value is not None and not os.path.isabs(value):
            wrong.append(f"{name} is not an absolute path")
    if policy.mode == "shared" and policy.shared_path is None:
        wrong.append('mode "shared" needs shared_path')
    counts = ("keep", "line", "restore_limit", "restore_seconds", "checkpoint_seconds", "log_bytes")
    wrong.extend(f"{name} is not above 0" for name in counts if getattr(policy, name) <= 0)
    if policy.line > LONGEST_LINE:
        wrong.append(f"line is above {LONGEST_LINE}")
    if wrong:
        raise BadInput(f"{path}: {'; '.join(wrong)}")


def policy_or_default(path: Path) -> tuple[Policy, HoldfastError | None]:
    """The policy, and if it cannot be used, the defaults and why."""
    try:
        return read_policy(path), None
    except HoldfastError as error:
        return Policy(), error
