"""Attempts to get out of a sandbox, or to take the server with it. Each must fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import Server, Starter
from tests.server.sandbox_client import Wire, attach, created

from holdfast.sandbox import keeping
from holdfast.store import open_store
from holdfast.testing.waiting import until

HOST_SECRET = secrets.token_hex(16)


@pytest.fixture(scope="module", params=["gvisor", "process"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = str(tmp_path_factory.mktemp("home"))
    with Starter(
        HOLDFAST_HOME=folder, XDG_CONFIG_HOME=folder, SECRET_OF_HOST=HOST_SECRET
    ) as starter:
        yield starter("--engine", request.param)


async def ended(wire: Wire) -> None:
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_host_files_stay_unseen(server: Server, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(HOST_SECRET)
    os.chmod(tmp_path, 0o755)
    wire = await created(server)
    look = f"""
cat {tmp_path}/secret /etc/shadow /proc/1/root{tmp_path}/secret 2>/dev/null
ls -A {Path.home()}/.ssh 2>/dev/null; ls -A /home; ls -A /boot /srv 2>/dev/null
cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -E 'SECRET_OF_HOST|HOLDFAST_' |\\
 grep -vE '^HOLDFAST_REQUEST_ID=[0-9a-f]+$'
grep -r {HOST_SECRET} /root/* /tmp /etc /run /var 2>/dev/null
cat /etc/hostname
"""
    assert await wire.run("bash", look) == "sandbox\n"
    await ended(wire)


async def test_links_lead_nowhere(server: Server, tmp_path: Path) -> None:
    """A link made inside means a file inside, also to the server that packs and lists files."""
    (tmp_path / "secret").write_text(HOST_SECRET)
    wire = await created(server, enable_checkpoint=True)
    await wire.run("bash", f"ln -s {tmp_path}/secret /root/l; ln -s / /root/top")
    for path in ("/root/l", "/root/top/../../../.." + str(tmp_path / "secret")):
        await wire.send(action="files", verb="read", path=path)
        assert (await wire.next())["event"] == "error"
    await wire.send(action="snapshot_filesystem", name="links")
    await wire.until("FILESYSTEM_SNAPSHOT_CREATED")
    new = await created(server, filesystem_snapshot_name="links")
    assert HOST_SECRET not in await new.run("bash", "cat /root/l 2>/dev/null; readlink /root/l")
    await ended(new)
    await ended(wire)


async def test_sandboxes_do_not_see_each_other(server: Server) -> None:
    one, two = await created(server), await created(server)
    await one.run("bash", f"echo {HOST_SECRET} > /root/x; echo {HOST_SECRET} > /tmp/x")
    await one.send(language="python", code="import time\nprint('up', flush=True)\ntime.sleep(100)")
    await one.until("stdout")
    seen = await two.run(
        "bash", "cat /root/x /tmp/x 2>/dev/null; cat /proc/*/cmdline | tr '\\0' ' '"
    )
    assert HOST_SECRET not in seen
    assert "sleep(100)" not in seen
    async with attach(server, (one.identity[0], two.identity[1])) as thief:
        assert (await thief.rest())[0] == ["PERMISSION_DENIAL_ERROR", "error"]
    await ended(one)
    await ended(two)


async def test_tokens_are_nowhere_inside(server: Server) -> None:
    """Nor the key of the store. The same search finds what was put there to be found."""
    wire = await created(server)
    key = (server.home / "key").read_text().strip()
    assert len(key) == 64
    needles = [wire.identity[1], str(server.token), key]
    bait = secrets.token_hex(16)
    baits = ("/tmp/a/.b/c", "/root/.d/e", "/dev/shm/f")
    for path in baits:
        await wire.send(action="files", verb="write", path=path, data=f"x {bait} x")
        assert (await wire.next())["event"] == "files"
    search = """
import glob, itertools, os, sys
needles = [each.encode() for each in input().split()]
needles += [bytes.fromhex(each.decode()) for each in needles if len(each) == 64]
shown = needles.pop(0)
walked = itertools.chain.from_iterable(
    os.walk(top) for top in ("/run", "/tmp", "/root", "/etc", "/var", "/dev/shm")
)
paths = []
for folder, folders, names in walked:
    paths += [os.path.join(folder, name) for name in names]
    # The interpreter may be in somebody's home; nothing but the interpreter is in there.
    folders[:] = [each for each in folders if os.path.join(folder, each) != sys.base_prefix]
for path in [*paths, *glob.glob("/proc/*/*"), *glob.glob("/proc/*/task/*/*")]:
    try:
        with open(path, "rb") as file:
            content = file.read(1 << 20)
    except OSError:
        continue
    if any(needle in content for needle in needles):
        print("found in", path)
    if shown in content:
        print("bait in", path)
"""
    await wire.send(language="python", code=search)
    await wire.send(event="stdin", data=" ".join([bait, *needles]) + "\n")
    await wire.until("EXECUTION_DONE")
    assert sorted(wire.output().splitlines()) == sorted(f"bait in {path}" for path in baits)
    await ended(wire)


def found(needles: list[bytes], content: Iterable[bytes]) -> set[bytes]:
    """Which of the needles are there, also across two pieces."""
    seen: set[bytes] = set()
    tail = b""
    for piece in content:
        seen.update(needle for needle in needles if needle in tail + piece)
        tail = piece[-100:]
    return seen


def written(path: Path) -> Iterator[bytes]:
    """What a file holds; disks of sandboxes are large, and nearly all holes."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        end = 0
        while end < size:
            try:
                begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # nothing but a hole is left
                return
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            for at in range(begin, end, 1 << 20):
                yield os.pread(file.fileno(), min(1 << 20, end - at), at)


async def test_tokens_are_kept_as_hashes(server: Server) -> None:
    wire = await created(server, enable_checkpoint=True)
    await wire.send(action="checkpoint", leave_running=True)
    await wire.until("CHECKPOINTED")
    shown = wire.heard[-2]["id"]
    with server.client(server.token) as client:
        assert wire.identity[1] not in client.get(f"/v1/checkpoints/{shown}").text
        assert wire.identity[1] not in client.get("/v1/sandboxes").text
    hashed = keeping.token_hash(wire.identity[1]).encode()
    tokens = [wire.identity[1].encode(), str(server.token).encode(), hashed]
    files = [Path(folder, name) for folder, _, names in os.walk(server.home) for name in names]
    files = [path for path in files if path.is_file() and not path.is_symlink()]
    assert any(path.suffix == ".log" for path in files)
    for path in files:
        assert found(tokens, written(path)) <= {hashed}, path
    # What the store holds is compressed; its parts are read, too, and there the hash is found.
    with open_store(server.home / "store", create=False) as store:
        seen: set[bytes] = set()
        for part in store.show(shown).parts:
            with store.open(shown, part.name, trust=True) as stream:
                seen |= found(tokens, iter(partial(stream.read, 1 << 20), b""))
    assert seen == {hashed}
    await ended(wire)


async def test_the_server_is_out_of_reach(server: Server) -> None:
    wire = await created(server)
    port = server.address.rpartition(":")[2]
    code = f"""
import socket
for address in ("127.0.0.1", "localhost", "169.254.169.254", "10.0.0.1"):
    try:
        socket.create_connection((address, {port}), 1)
        print("reached", address)
    except OSError:
        pass
"""
    assert await wire.run("python", code) == ""
    await ended(wire)


async def test_power_is_not_to_be_had(server: Server) -> None:
    wire = await created(server)
    tries = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
got = []
def attempt(name, function, *arguments):
    try:
        function(*arguments)
        got.append(name)
    except OSError:
        pass
attempt("setuid", os.setuid, 0)
attempt("chroot", os.chroot, "/tmp")
def disk():
    os.mknod("/tmp/disk", 0o60600, os.makedev(254, 0))
    open("/tmp/disk", "rb").read(1)
attempt("disk", disk)
attempt("passwd", open, "/etc/passwd", "a")
attempt("usr", open, "/usr/bin/evil", "w")
attempt("kill", os.kill, 1, 9)
attempt("sysrq", open, "/proc/sysrq-trigger", "w")
attempt("mem", open, "/dev/mem", "rb")
attempt("kmsg", open, "/dev/kmsg", "rb")
if libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) == 0: got.append("mount")
if libc.ptrace(16, 1, 0, 0) == 0: got.append("ptrace")
if libc.sethostname(b"x", 1) == 0: got.append("hostname")
print(got)
"""
    assert await wire.run("python", tries) == "[]\n"
    assert "root" not in await wire.run("bash", "su -c id 2>/dev/null; sudo id 2>/dev/null; id -un")
    await ended(wire)


async def test_bombs_go_off_inside(server: Server) -> None:
    """Forks, memory and files: the server and its other sandboxes go on."""
    victim = await created(
        server, limits={"processes": 64, "memory_bytes": 256 << 20, "disk_bytes": 16 << 20}
    )
    other = await created(server)
    await victim.send(
        language="bash", code="bomb() { bomb | bomb & }; bomb; sleep 2; echo survived"
    )
    await asyncio.sleep(1)
    assert await other.run("bash", "echo fine") == "fine\n"
    await victim.send(action="kill_process")
    fresh = await created(server, limits={"memory_bytes": 256 << 20, "disk_bytes": 16 << 20})
    full = await fresh.run("bash", "head -c 100M /dev/zero > /root/big; echo $?; rm -f /root/big")
    assert "No space left" in full or "File size limit" in full or "153" in full
    greedy = await fresh.run("python", "x = b'x' * (1 << 30)\nprint('got it')")
    assert "got it" not in greedy
    exits = [each for each in fresh.heard if each["event"] == "exit"]
    assert exits[-1].get("code") != 0  # an error of its own, or a signal
    assert await other.run("bash", "echo still fine") == "still fine\n"
    with server.client(server.token) as client:
        for each in client.get("/v1/sandboxes").json()["sandboxes"]:
            client.delete(f"/v1/sandboxes/{each['id']}")
        assert client.get("/status").json()["sandboxes"] == 0


def executing(client: httpx.Client, wire: Wire) -> bool:
    listed = client.get("/v1/sandboxes").json()["sandboxes"]
    (found,) = [each for each in listed if each["id"] == wire.identity[0]]
    return bool(found["executing"])


async def test_floods_are_bounded(server: Server) -> None:
    wire = await created(server)
    await wire.send(language="bash", code="yes | head -c 50000000; echo; echo end")
    total = 0
    while (message := await wire.next())["event"] != "exit":
        total += len(message.get("data", ""))
    assert total == 50_000_005
    await wire.until("EXECUTION_DONE")
    await wire._socket.close()
    async with attach(server, wire.identity) as back:
        await back.until("RUNNING")
        await back.send(language="bash", code="yes | head -c 50000000; sleep 0.3; echo; echo end")
        await back.until("EXECUTION_RUNNING")
        # Nobody reads for a while: what does not fit is counted, not kept.
        await back._socket.close()
    with server.client(server.token) as client:
        await until(lambda: not executing(client, wire), "it has ended")
    async with attach(server, wire.identity) as back:
        await back.until("RUNNING")
        await back.send(action="reconnect", offset=0)
        await back.until("EXECUTION_DONE")
        got = sum(len(each["data"]) for each in back.heard if each["event"] == "stdout")
        gap = sum(each.get("gap", 0) for each in back.heard)
        assert got + gap == 50_000_005
        assert gap > 0
        await ended(back)


async def test_frames_of_every_kind_are_survived(server: Server) -> None:
    wire = await created(server)
    for frame in (
        "x" * (8 << 20) + "x",
        json.dumps({"action": "files", "verb": "read", "path": "\0"}),
        json.dumps({"action": "files", "verb": "steal", "path": "/"}),
        json.dumps({"action": "fork", "count": 10**9}),
        json.dumps({"action": "rollback", "checkpoint": "../../x"}),
        json.dumps({"argv": ["a"] * 100_000}),
        json.dumps({"language": "python", "code": "\ud800"}),
        '{"language": "bash", "code": "x", "env": {"A": 1}}',
        '{"a":' * 5000 + "1" + "}" * 5000,
    ):
        await wire.send_raw(frame)
        while (await wire.next())["event"] != "error":
            pass
    assert await wire.run("bash", "echo fine") == "fine\n"
    await wire.send_raw("x" * (10 << 20))
    assert await wire.rest() == ([], 1009)
    async with attach(server, wire.identity) as back:
        await back.until("RUNNING")
        assert await back.run("bash", "echo alive") == "alive\n"
        await ended(back)
    assert httpx.get(f"{server.address}/status").json()["status"] == "ok"
