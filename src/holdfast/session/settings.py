"""What a session is made with, apart from its name: checked once, handed on to its forks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from holdfast.model.errors import BadInput
from holdfast.model.secrets import Rule, from_environment, plain_name
from holdfast.session import checks
from holdfast.session.autosave import Automatic
from holdfast.session.driver import Answer
from holdfast.session.limits import Limits
from holdfast.session.workers import Launch
from holdfast.store import retention


class Options(TypedDict, total=False):
    """The options of `Session`, for everything else that makes one."""

    on_input: Answer | None
    secrets: Mapping[str, str | bytes] | None
    keep_secrets: bool | Iterable[str] | None
    leave_out: Iterable[str] | None
    python: str | None
    cwd: str | Path | None
    env: Mapping[str, str] | None
    max_item_bytes: int | None
    max_checkpoint_bytes: int | None
    memory_limit: int | None
    cpu_limit: float | None
    auto_checkpoint: Automatic
    keep: retention.Policy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A session's options as they hold."""

    launch: Launch
    limits: Limits
    secrets: Mapping[str, str | bytes]
    rule: Rule  # of what is a secret
    on_input: Answer | None
    max_item_bytes: int | None
    max_checkpoint_bytes: int | None
    auto_checkpoint: Automatic
    keep: retention.Policy | None

    @classmethod
    def of(cls, options: Options) -> Settings:
        """Raises BadInput for what cannot be meant."""
        answer = options.get("on_input")
        if answer is not None and not callable(answer):
            raise BadInput(f"on_input is {type(answer).__name__}, not a function")
        python = options.get("python")
        cwd = options.get("cwd")
        launch = Launch(
            python=sys.executable if python is None else checks.path("python", python),
            cwd=None if cwd is None else Path(checks.path("cwd", cwd)),
            env=checks.texts("env", options.get("env")),
        )
        most = checks.size("max_checkpoint_bytes", options.get("max_checkpoint_bytes"))
        automatic = _automatic(options.get("auto_checkpoint"))
        keep = options.get("keep")
        if keep is not None and not isinstance(keep, retention.Policy):
            raise BadInput(
                f"keep is {type(keep).__name__}, not a policy",
                hint="such as holdfast.store.retention.Last(10)",
            )
        return cls(
            launch=launch,
            limits=Limits.of(options.get("memory_limit"), options.get("cpu_limit")),
            secrets=checks.secrets("secrets", options.get("secrets")),
            rule=_rule(options.get("keep_secrets"), options.get("leave_out")),
            on_input=answer,
            max_item_bytes=checks.size("max_item_bytes", options.get("max_item_bytes")),
            max_checkpoint_bytes=most,
            auto_checkpoint=automatic,
            # Checkpoints that nobody asked for one by one must not fill the disk.
            keep=retention.DEFAULT if keep is None and automatic is not None else keep,
        )

    def given(self, secrets: Mapping[str, str | bytes] | None) -> dict[str, str | bytes]:
        """All secrets that a restore may put in again, by name. Raises BadInput."""
        found: dict[str, str | bytes] = {}
        environ = checks.texts("environ", from_environment(os.environ))
        for more in (environ, self.secrets, checks.secrets("secrets", secrets)):
            # Upper and lower case mean the same name, and the last that is given counts.
            again = set(map(plain_name, more))
            found = {name: text for name, text in found.items() if plain_name(name) not in again}
            found.update(more)
        return found


def _rule(keep_secrets: object, leave_out: object) -> Rule:
    """What is given, or else what the environment says."""
    said = checks.rule_of(os.environ)
    if keep_secrets is not None:
        said = checks.rule(keep_secrets, sorted(said.leave_out))
    if leave_out is not None:
        more = checks.rule(False, leave_out).leave_out
        said = Rule(said.keep, more, said.keep_all)
    return said


def _automatic(value: object) -> Automatic:
    if value is None or value == "cell":
        return "cell" if value == "cell" else None
    if isinstance(value, str):
        raise BadInput(
            f"auto_checkpoint is {value!r}", hint="'cell', or a number of seconds, or None"
        )
    every = checks.seconds("auto_checkpoint", value)
    if every is None or every <= 0:
        raise BadInput("auto_checkpoint is not more than 0 seconds")
    return every
