"""Every place that makes a file or a folder: through `holdfast.model.files`, with the mode of a
private one, or in the list below with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

# Modules that make files otherwise, and why nobody else can open them, or why others should.
MADE_OTHERWISE = {
    "model/files.py": "makes them for all others",
    # Inside a folder that is private from the moment in which it is made.
    "oci/checkpoint_handler.py": "in a staged folder of the vault, 0700",
    "oci/keeper.py": "in the folder of running containers, 0700; and in /proc",
    "oci/memory/increment.py": "in a staged folder of the vault, 0700",
    "oci/memory/whole.py": "in a staged folder of the vault, 0700",
    "oci/podman/exchange.py": "in a temporary folder, 0700",
    "oci/podman/incoming.py": "in a staged folder of the vault, 0700",
    "oci/podman/outgoing.py": "in a temporary folder, 0700",
    "oci/rehearsal/rehearsal.py": "in a folder of the rehearsal, 0700",
    "oci/rehearsal/stage.py": "in a folder of the rehearsal, 0700; and in /proc",
    "runtime/trial.py": "in a temporary folder, 0700",
    "session/worker/kinds/connections.py": "in a temporary folder, 0700",
    "session/worker/kinds/models.py": "in a temporary folder, 0700",
    "sandbox/engines/container.py": "in the folder of one server's sandboxes, 0700",
    "sandbox/engines/lifeline.py": "in the folder of one server's sandboxes, 0700",
    "sandbox/engines/namespaces.py": "in the folder of one server's sandboxes, 0700",
    "sandbox/engines/runc.py": "in the folder of one server's sandboxes, 0700",
    "sandbox/keeping.py": "in the folder of one server's sandboxes, 0700",
    "sandbox/live.py": "in the folder of one server's sandboxes, 0700",
    "sandbox/templates.py": "in the folder of one server's sandboxes, 0700",
    # A sandbox's own files, in that same folder: what runs in it must be able to read them.
    "sandbox/images.py": "an image's own modes",
    "sandbox/roots.py": "the root of sandboxes",
    "sandbox/upper.py": "a sandbox's own modes",
    "sandbox/volume.py": "a sandbox's volume",
    "sandbox/agent/files.py": "inside the sandbox, for its user",
    "sandbox/agent/loop.py": "inside the sandbox",
    "sandbox/agent/begin.py": "inside the sandbox",
    # Not ours.
    "oci/installation.py": "configuration that programs of other users read",
    "oci/layer/extract.py": "a container's own modes",
    "oci/shared.py": "keeps the mode of the file that it replaces",
    "sandbox/limits.py": "control groups",
    "session/door.py": "an abstract socket, which asks who connects",
    "server/listen.py": "a TCP port",
    "server/mcp/workspace.py": "a person's files, with a person's umask",
    "server/mcp/serving.py": "a descriptor that is open already",
    "cli/main.py": "the null device",
}


def test_every_file_is_made_private(repository: Path) -> None:
    source = repository / "src" / "holdfast"
    found: dict[str, list[str]] = {}
    for path in sorted(source.rglob("*.py")):
        name = str(path.relative_to(source))
        if name.startswith("testing/"):
            continue
        places = [f"{name}:{call.lineno} {ast.unparse(call)[:80]}" for call in loose(path)]
        if places:
            found[name] = places
    new = [place for name in found.keys() - MADE_OTHERWISE.keys() for place in found[name]]
    assert new == [], "make it by `holdfast.model.files`, or say here why not"
    assert MADE_OTHERWISE.keys() - found.keys() == set(), "these can leave the list"


def loose(path: Path) -> Iterator[ast.Call]:
    """Calls that make something whose mode is not that of a private file or folder."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and is_loose(node):
            yield node


def is_loose(call: ast.Call) -> bool:
    name, owner = called(call)
    given = {each.arg: ast.unparse(each.value) for each in call.keywords}
    arguments = [ast.unparse(each) for each in call.args]
    match name:
        case "mkdir" | "makedirs" | "mkdirs":
            mode = given.get("mode", arguments[-1] if owner == "os" else "")
            return mode not in ("448", "0o700") or given.get("parents") == "True"
        case "open" if owner == "os":
            return any("O_CREAT" in each for each in arguments) and "384" not in arguments
        case "open" if owner in ("", "Path") or not arguments or is_mode(arguments[0]):
            modes = [each for each in [*arguments, *given.values()] if is_mode(each)]
            # Of a descriptor the mode was said when it was made.
            first = arguments[0] if arguments else ""
            is_open = owner == "" and ("(" in first or first in ("fd", "said"))
            private = is_open or "fileobj" in given or given.get("opener") == "_private"
            return any(set("wxa") & set(each) for each in modes) and not private
        case "write_text" | "write_bytes" | "touch":
            return "mode" not in given and (name != "touch" or owner.startswith(("path", "place")))
        case "copyfile" | "copy2" | "copytree" | "mknod" | "mkfifo":
            return True
        case "start_unix_server" | "create_unix_server":
            return "sock" not in given
        case "bind":
            return "listener" in owner
    return False


def is_mode(text: str) -> bool:
    inner = text.strip("'\"")
    return text[:1] in "'\"" and len(inner) <= 3 and bool(inner) and set(inner) <= set("rwxabt+")


def called(call: ast.Call) -> tuple[str, str]:
    if isinstance(call.func, ast.Name):
        return call.func.id, ""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr, ast.unparse(call.func.value)
    return "", ""
