"""The reference of the libraries has every public name, with its parameters and their defaults."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import bundle, client, session, state, store
from holdfast.client.files import FileInfo, Files
from holdfast.model import checkpoint, owner, report
from holdfast.store import changes, collect, comparison, leases, retention, usage
from holdfast.store.draft import Draft
from holdfast.store.faces.looking import SubjectSummary
from holdfast.store.parts.mapping import Mapping
from holdfast.store.transfer import copying, exporting, importing

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
CLIENT = Path(__file__).resolve().parents[2] / "clients" / "js" / "src"

# What stands on which page: classes that users make, and those that they are given. By which
# options these are made, nobody has to know.
PAGES: dict[str, tuple[list[type], list[type]]] = {
    "sessions": ([session.Session, session.SessionPool], []),
    "state": ([state.StateManager], [state.Autosave]),
    "store": (
        [
            policy
            for policy in vars(retention).values()
            if policy in retention.Policy.__subclasses__()
        ],
        [store.Store, Draft, leases.Lease, Mapping],
    ),
    "sandbox": ([], [client.Sandbox, client.Process, client.Stream, Files]),
    "bundle": ([bundle.Bundle], []),
}
VALUES: dict[str, list[type]] = {
    "sessions": [session.Result, session.SessionCheckpoint],
    "state": [state.StateCheckpoint, state.Change],
    "store": [
        checkpoint.Checkpoint,
        checkpoint.Manifest,
        checkpoint.Part,
        checkpoint.HeadMove,
        report.Verification,
        report.Problem,
        owner.Owner,
        SubjectSummary,
        usage.Usage,
        changes.Changes,
        comparison.Diff,
        comparison.PartDiff,
        collect.PruneReport,
        exporting.ExportReport,
        importing.ImportReport,
        copying.CopyReport,
    ],
    "sandbox": [client.CheckpointInfo, client.Exit, FileInfo],
    "bundle": [bundle.Inside],
}
# How a process and its streams hear of what happens: not for those who use them.
INNER = {
    "heard",
    "window",
    "killed",
    "spared",
    "left",
    "end",
    "feed",
    "finish",
    "full",
    "unread",
    "lift",
    "with_report",
}


def spans(page: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", (REFERENCE / f"{page}.md").read_text("utf-8")))


def words(page: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(spans(page))))


def call(name: str, function: Callable[..., object], *, bound: bool = False) -> str:
    """How a call is written: `name(a, b=1, *, c=None)`. What is no plain value is `...`."""
    shown = []
    parameters = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    kinds = [each.kind for each in parameters]
    for at, each in enumerate(parameters):
        first = at == kinds.index(each.kind)
        if each.kind is each.KEYWORD_ONLY and first and each.VAR_POSITIONAL not in kinds:
            shown.append("*")
        text = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "") + each.name
        if each.default is not each.empty:
            plain = isinstance(each.default, str | int | float | tuple | None)
            text += "=" + (repr(each.default).replace("'", '"') if plain else "...")
        shown.append(text)
    return f"{name}({', '.join(shown)})"


def members(kind: type) -> dict[str, object]:
    """What users of a class see of it, inherited or not."""
    names = [name for name in dir(kind) if not name.startswith("_") and name not in INNER]
    return {name: inspect.getattr_static(kind, name) for name in names}


def calls(kind: type) -> set[str]:
    shown = set()
    for name, member in members(kind).items():
        if isinstance(member, classmethod | staticmethod):
            shown.add(call(f"{kind.__name__}.{name}", getattr(kind, name)))
        elif inspect.isfunction(member):
            shown.add(call(name, member, bound=True))
    return shown


@pytest.mark.parametrize("page", PAGES)
def test_every_call_is_there_as_it_is_written(page: str) -> None:
    made, given = PAGES[page]
    wanted = {call(kind.__name__, kind) for kind in made}
    for kind in made + given:
        if not issubclass(kind, retention.Policy):
            wanted |= calls(kind)
    if page == "store":
        wanted.add(call("open_store", store.open_store))
    if page == "state":
        wanted.add(call("register", state.register))
    assert wanted - spans(page) == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_other_name_is_there(page: str) -> None:
    kinds = [*PAGES[page][0], *PAGES[page][1], *VALUES[page]]
    wanted = {name for kind in kinds for name in members(kind)}
    for kind in VALUES[page]:
        wanted.add(kind.__name__)
        fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
        wanted |= {each.name for each in fields} or set(kind.__struct_fields__)  # type: ignore[attr-defined]
    assert wanted - words(page) == set()


def typescript(module: str) -> str:
    return (CLIENT / f"{module}.ts").read_text()


def test_every_export_of_the_typescript_client_is_there() -> None:
    names = set(re.findall(r"\b[A-Z]\w+", typescript("index").partition("*/")[2]))
    exported = r"^export (?:class|type|interface|function) (\w+)"
    names |= set(re.findall(exported, typescript("errors"), re.MULTILINE))
    assert {"Sandbox", "CreateOptions", "OutputStream", "Conflict"} <= names
    assert names - words("typescript") == set()


METHOD = re.compile(r"^  (static )?(?:async )?([a-z]\w*)\(([^)]*)\): [^{;]+[{;]$", re.MULTILINE)


@pytest.mark.parametrize("module", ["sandbox", "process", "output", "files"])
def test_every_call_of_the_typescript_client_is_there(module: str) -> None:
    """With the names of its parameters; those that may be left out have a question mark."""
    body = typescript(module).partition("export class")[2].partition("\n}")[0]
    body = re.sub(r"/\*\* @internal[^/]*\*/\n.*\n", "", body)
    found = METHOD.findall(body)
    assert found
    for static, name, given in found:
        if "codeOrOptions" in given:
            continue  # its overloads are what users see
        parameters = [
            word + ("?" if optional or default else "")
            for word, optional, default in re.findall(r"(\w+)(\?)?: [^=,]+(= )?", given)
        ]
        shown = f"{'Sandbox.' if static else ''}{name}({', '.join(parameters)})"
        assert shown in spans("typescript"), f"docs/reference/typescript.md lacks {shown}"
    other = set(re.findall(r"^  (?:get|readonly) (\w+)", body, re.MULTILINE))
    assert other - words("typescript") == set()


def test_every_option_of_the_typescript_client_is_there() -> None:
    limits = typescript("messages").partition("export interface Limits")[2].partition("\n}")[0]
    text = typescript("types") + limits
    options = set(re.findall(r"^  (\w+)(?:\?)?: ", text, re.MULTILINE))
    assert {"enableCheckpoint", "leaveRunning", "pauseMs", "cpus", "RESTORING"} <= options
    assert options - words("typescript") == set()
