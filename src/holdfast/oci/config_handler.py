"""What a container asks for in its `config.json`, as far as the policy lets it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from holdfast.model.errors import BadInput, Denied, HoldfastError, from_os_error
from holdfast.model.subject import Subject
from holdfast.oci.constants import ANNOTATION_PREFIX, VARIABLE_PREFIX
from holdfast.oci.policy import Mode, Policy

_YES = frozenset(["1", "true", "yes", "on"])
_SANDBOX = ("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType")
_KUBERNETES = (
    (
        "io.kubernetes.cri.sandbox-namespace",
        "io.kubernetes.cri.sandbox-name",
        "io.kubernetes.cri.container-name",
    ),
    ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.container.name"),
)

Config = Mapping[str, Any]  # config.json: an OCI runtime specification, as it was written


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a container that has opted in gets."""

    subject: Subject
    mode: Mode
    base_path: str | None  # None in mode `store`
    value: float = 0


class ConfigHandler:
    """Reads one container's configuration under one policy."""

    def __init__(self, policy: Policy | None = None, config: Config | None = None) -> None:
        self.policy = policy or Policy()
        self.config = config or {}
        self._annotations = _texts(self.config.get("annotations"))
        self._variables = _variables(self.config)

    def get(self, name: str) -> str | None:
        """A setting of the container: the annotation `holdfast.<name>`, else the variable."""
        annotated = self._annotations.get(ANNOTATION_PREFIX + name)
        if annotated is not None:
            return annotated
        return self._variables.get(VARIABLE_PREFIX + name.upper())

    def opted_in(self) -> bool:
        """Whether the container wants to be frozen and revived."""
        if any(self._annotations.get(name) == "sandbox" for name in _SANDBOX):
            return False
        if self.policy.opt_in == "annotation":
            return self._annotations.get(f"{ANNOTATION_PREFIX}checkpoint", "").lower() in _YES
        return (self.get("checkpoint") or "").lower() in _YES

    def wishes(self, namespace: str, container_id: str) -> Wishes:
        """What this container gets; raises BadInput or Denied when it asks for what cannot be."""
        mode = self.get_mode()
        base = None if mode == "store" else self.get_checkpoint_base_path()
        return Wishes(self.get_subject(namespace, container_id), mode, base, self.get_value())

    def get_subject(self, namespace: str, container_id: str) -> Subject:
        """The identity that stays the same when the container is created again."""
        given, pod = self._given_name(), self._pod()
        if given is None:
            name = "/".join(pod) if pod else container_id
        else:
            # A pod's containers share names, and so checkpoints, only within its own namespace.
            name = f"{pod[0]}/{given}" if pod else given
        subject = Subject("container", f"{namespace}/{name}")
        if any(part.startswith(".") for part in subject.name.split("/")):
            raise BadInput(f"no part of {subject.name!r} may begin with a dot")
        return subject

    def _given_name(self) -> str | None:
        given = self.get("name")
        if given is None:
            return None
        if "/" in given:
            raise BadInput(f"holdfast.name {given!r} has a slash", hint="use one plain word")
        annotated = f"{ANNOTATION_PREFIX}name" in self._annotations
        if not annotated and "annotation" in (self.policy.opt_in, self.policy.names):
            raise Denied(
                f"the policy does not let variables name a container, but {given!r} is one",
                hint=f"give it as an annotation: {ANNOTATION_PREFIX}name={given}",
            )
        return given

    def get_value(self) -> float:
        """How much it is worth to save this container before others; raises BadInput."""
        asked = self.get("value")
        try:
            value = float(asked or 0)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadInput(f"holdfast.value is {asked!r}", hint="a number; larger ones come first")
        return value

    def get_mode(self) -> Mode:
        """Where checkpoints go. A mode that the policy does not allow raises Denied."""
        asked = self.get("mode")
        if asked is None or asked == self.policy.mode:
            return self.policy.mode
        for mode in self.policy.modes:
            if asked == mode:
                return mode
        if asked not in get_args(Mode):
            raise BadInput(
                f"holdfast.mode is {asked!r}", hint=f"one of {', '.join(get_args(Mode))}"
            )
        raise Denied(
            f"the policy does not let containers choose the mode {asked!r}",
            hint=f'add it to the policy: modes = ["{asked}"]',
        )

    def get_checkpoint_base_path(self) -> str:
        """The directory for checkpoints: the policy's own, or the container's choice where the
        policy allows that; raises Denied."""
        asked = self.get("path")
        if asked is None:
            return self._policy_path()
        real = os.path.realpath(asked)
        for allowed in self.policy.allowed_paths:
            top = os.path.realpath(allowed)
            if os.path.isabs(asked) and (real == top or real.startswith(f"{top.rstrip('/')}/")):
                return real
        raise Denied(
            f"the policy does not let containers keep checkpoints in {asked!r}",
            hint="name a directory above it in the policy's allowed_paths",
        )

    def _policy_path(self) -> str:
        if self.get_mode() != "shared":
            return self.policy.checkpoint_path
        if self.policy.shared_path is None:
            raise Denied("there is no shared path", hint="set shared_path in the policy")
        return self.policy.shared_path

    def _pod(self) -> tuple[str, ...]:
        """The namespace, the pod and the container, as Kubernetes names them; empty elsewhere."""
        for names in _KUBERNETES:
            parts = tuple(self._annotations.get(name, "") for name in names)
            if all(parts):
                return parts
        return ()


def read_config(bundle: str) -> Config:
    """A bundle's `config.json`; raises NotFound, BadInput and the like."""
    try:
        found = json.loads(Path(bundle, "config.json").read_bytes())
    except OSError as error:
        raise from_os_error(error, "reading the container's configuration") from error
    except ValueError:
        raise BadInput(f"{bundle}/config.json is not JSON") from None
    if not isinstance(found, dict):
        raise BadInput(f"{bundle}/config.json is no configuration")
    return found


@dataclass(frozen=True, slots=True)
class OptIn:
    """The answer to "is this container ours?": its wishes, or why not (if there is a reason)."""

    wishes: Wishes | None
    trouble: HoldfastError | None = None


def opt_in(policy: Policy, config: Config, namespace: str, container_id: str) -> OptIn:
    """Whether a container is ours; one that asks for what it may not have is not, and says why."""
    handler = ConfigHandler(policy, config)
    if not handler.opted_in():
        return OptIn(None)
    try:
        return OptIn(handler.wishes(namespace, container_id))
    except HoldfastError as error:
        return OptIn(None, error)


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {k: v for k, v in value.items() if isinstance(k, str) and isinstance(v, str)}


def _variables(config: Config) -> dict[str, str]:
    process = config.get("process")
    listed = process.get("env") if isinstance(process, Mapping) else None
    texts = [each for each in listed or () if isinstance(each, str)]
    return dict(each.split("=", 1) for each in texts if "=" in each)
