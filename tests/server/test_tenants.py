"""Tenants do not meet: names, sandboxes and what they may be given belong to each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.server.conftest import Server, Starter
from tests.server.sandbox_client import Wire, attach, created

from holdfast import Sandbox
from holdfast.model.errors import BadInput, Denied, NotFound, Unsupported
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.protocol.sandbox_messages import Limits as Asked
from holdfast.sandbox.allowance import Allowance
from holdfast.sandbox.contract import Limits
from holdfast.server.tenants import read

ONE, TWO, TIGHT, ODD = (f"token-of-the-{name}-one" for name in ("first", "second", "tight", "odd"))
TOKENS = f"""
[one]
token = "{ONE}"

[two]
token = "{TWO}"
shared = ["base"]

[tight]
token = "{TIGHT}"
egress = ["example.org", "*.example.net:8443"]
engines = ["process"]
images = ["other"]
memory = "64MiB"
processes = 32

["odd / name"]
token = "{ODD}"
network = true
"""


@dataclass(frozen=True, slots=True)
class Parties:
    """A server, as its owner and its tenants come to it."""

    owner: Server
    one: Server
    two: Server
    tight: Server
    odd: Server


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    folder = tmp_path_factory.mktemp("tenants")
    (folder / "tokens.toml").write_text(TOKENS)
    with Starter(HOLDFAST_HOME=str(folder), XDG_CONFIG_HOME=str(folder)) as starter:
        options = ("--engine", "process", "--pool", "0", "--tokens", str(folder / "tokens.toml"))
        owner = starter(*options)
        others = (replace(owner, token=each) for each in (ONE, TWO, TIGHT, ODD))
        yield Parties(owner, *others)


@pytest.fixture
async def made(parties: Parties) -> AsyncIterator[list[Sandbox]]:
    """Sandboxes of a test, which end with it."""
    boxes: list[Sandbox] = []
    yield boxes
    for each in boxes:
        await each.kill()


async def box(made: list[Sandbox], server: Server, **options: Any) -> Sandbox:
    sandbox = await Sandbox.create(server.address, token=server.token, **options)
    made.append(sandbox)
    return sandbox


async def test_snapshot_names_belong_to_tenants(parties: Parties, made: list[Sandbox]) -> None:
    for server, text in ((parties.one, "of one"), (parties.owner, "of the owner")):
        sandbox = await box(made, server)
        await sandbox.files.write("/root/mine", text)
        await sandbox.snapshot_filesystem("files")
    with pytest.raises(NotFound, match="no snapshot 'files'"):
        await box(made, parties.two, filesystem_snapshot_name="files")
    two = await box(made, parties.two)
    await two.files.write("/root/mine", "of two")
    await two.snapshot_filesystem("files")
    for server, text in (
        (parties.one, b"of one"),
        (parties.two, b"of two"),
        (parties.owner, b"of the owner"),
    ):
        again = await box(made, server, filesystem_snapshot_name="files")
        assert await again.files.read("/root/mine") == text


async def test_template_names_belong_to_tenants(parties: Parties, made: list[Sandbox]) -> None:
    for server, text in ((parties.one, "of one"), (parties.owner, "of the owner")):
        sandbox = await box(made, server)
        await sandbox.files.write("/root/mine", text)
        await sandbox.save_template("warm")
    with pytest.raises(NotFound, match="no template 'warm'"):
        await box(made, parties.two, template="warm")
    for server, text in ((parties.one, b"of one"), (parties.owner, b"of the owner")):
        again = await box(made, server, template="warm")
        assert await again.files.read("/root/mine") == text


async def test_shared_names_are_read_only(parties: Parties, made: list[Sandbox]) -> None:
    owner = await box(made, parties.owner)
    await owner.files.write("/root/mine", "of the owner")
    await owner.snapshot_filesystem("base")
    with pytest.raises(NotFound):
        await box(made, parties.one, filesystem_snapshot_name="base")
    two = await box(made, parties.two, filesystem_snapshot_name="base")
    assert await two.files.read("/root/mine") == b"of the owner"
    await two.files.write("/root/mine", "of two")
    await two.snapshot_filesystem("base")  # its own from now on
    for server, text in ((parties.two, b"of two"), (parties.owner, b"of the owner")):
        again = await box(made, server, filesystem_snapshot_name="base")
        assert await again.files.read("/root/mine") == text


async def test_names_of_any_tenant_can_be_kept(parties: Parties, made: list[Sandbox]) -> None:
    odd = await box(made, parties.odd)
    await odd.files.write("/root/mine", "odd")
    await odd.snapshot_filesystem("files")
    again = await box(made, parties.odd, filesystem_snapshot_name="files")
    assert await again.files.read("/root/mine") == b"odd"


async def test_sandboxes_belong_to_tenants(parties: Parties) -> None:
    wire = await created(parties.one, enable_checkpoint=True)
    await wire._socket.close()

    async def refused(server: Server) -> bool:
        async with attach(server, wire.identity) as other:
            words, code = await other.rest()
        assert (words[0], code) == ("PERMISSION_DENIAL_ERROR", 4000)
        assert "belongs to another token" in str(other.heard[-1]["message"])
        return True

    assert await refused(parties.two)  # while it runs
    async with attach(parties.one, wire.identity) as own:
        await own.until("RUNNING")
        await own.send(action="checkpoint")
        await own.rest()
    assert await refused(parties.two)  # and while it is kept
    async with attach(parties.owner, wire.identity) as owner:
        await owner.until("RUNNING")
        await owner.send(action="checkpoint")
        await owner.rest()
    assert await refused(parties.two)  # and wherever it was in between
    async with attach(parties.one, wire.identity) as own:
        await own.until("RUNNING")
        await own.send(action="kill_sandbox")
        await own.rest()


async def test_ports_belong_to_tenants(parties: Parties, made: list[Sandbox]) -> None:
    sandbox = await box(made, parties.one, ports=[8000])
    path = f"/v1/sandboxes/{sandbox.sandbox_id}/ports/8000/"
    held = {"Holdfast-Sandbox-Token": sandbox.sandbox_token}
    for server, status in ((parties.one, 404), (parties.two, 403)):  # 404: nothing listens
        with server.client(server.token) as client:
            assert client.get(path, headers=held).status_code == status


async def test_no_checkpoint_of_others_is_named(parties: Parties, made: list[Sandbox]) -> None:
    mine = await box(made, parties.one, enable_checkpoint=True)
    yours = await box(made, parties.two, enable_checkpoint=True)
    await yours.checkpoint("one", leave_running=True)
    theirs = await mine.checkpoint("two", leave_running=True)
    for reference in (theirs.id, f"sandbox/{mine.sandbox_id}", "no-such-tag"):
        with pytest.raises(NotFound) as refused:
            await yours.rollback(reference)
        assert str(refused.value) == f"this sandbox has no checkpoint {reference!r}"


async def refusal(server: Server, **options: object) -> dict[str, object]:
    async with Wire(server, "/create") as wire:
        await wire.send(**options)
        assert await wire.rest() == (["CREATING", "CREATION_ERROR", "error"], 4000)
        return wire.heard[-1]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"image": "other", "network": True}, "network"),
        ({"image": "other", "egress": ["example.com"]}, "egress"),
        ({"image": "other", "egress": ["*.example.org"]}, "egress"),
        ({"image": "other", "egress": ["www.example.net"]}, "egress"),
        ({}, "images"),
        ({"image": "other", "limits": {"memory_bytes": 65 << 20}}, "memory"),
        ({"image": "other", "limits": {"processes": 64}}, "processes"),
    ],
)
async def test_refusals_name_the_limit(
    parties: Parties, options: dict[str, object], limit: str
) -> None:
    told = await refusal(parties.tight, **options)
    assert told["kind"] == "denied"
    assert f"the limit is `{limit}`" in str(told["hint"])


async def test_the_hosts_network_is_given_on_purpose(parties: Parties, made: list[Sandbox]) -> None:
    assert "`network`" in str((await refusal(parties.one, network=True))["hint"])
    await box(made, parties.odd, network=True)
    # Not by way of a template either.
    owner = await box(made, parties.owner, network=True)
    await owner.save_template("base")
    assert "`network`" in str((await refusal(parties.two, template="base"))["hint"])


async def test_a_server_may_give_no_network(start: Starter) -> None:
    server = start("--engine", "process", "--pool", "0", "--network", "off")
    told = await refusal(server, network=True)
    assert (told["kind"], told["hint"]) == ("unsupported", "serve --network on")
    told = await refusal(server, limits={"memory_bytes": 3 << 30})
    assert (told["kind"], "serve --sandbox-memory" in str(told["hint"])) == ("denied", True)


def test_sizes_of_a_token_stay_with_its_sandboxes() -> None:
    server = Limits(memory_bytes=1 << 30, processes=100)
    tight = Allowance(memory_bytes=1 << 28, processes=200)
    settled = tight.settle(CreateRequest(), "gvisor", server)
    assert settled.limits == Asked(memory_bytes=1 << 28, processes=100)
    less = CreateRequest(limits=Asked(memory_bytes=1 << 27, cpus=1.0))
    assert tight.settle(less, "gvisor", server).limits == Asked(
        memory_bytes=1 << 27, cpus=1.0, processes=100
    )
    assert Allowance().settle(CreateRequest(), "gvisor", server) == CreateRequest()


@pytest.mark.parametrize(
    ("rule", "allowed", "within"),
    [
        ("example.org", "example.org", True),
        ("Example.ORG", "example.org", True),
        ("example.org:443", "example.org", True),
        ("example.org:22", "example.org", False),
        ("example.org", "example.org:8443", False),
        ("a.example.org", "*.example.org", True),
        ("*.a.example.org", "*.example.org", True),
        ("*.example.org", "*.example.org", True),
        ("example.org", "*.example.org", False),
        ("badexample.org", "*.example.org", False),
        ("*.example.org", "a.example.org", False),
        ("*.org", "*.example.org", False),
    ],
)
def test_egress_is_within_its_list(rule: str, allowed: str, within: bool) -> None:
    allowance = Allowance(egress=(allowed,))
    request = CreateRequest(egress=(rule,))
    if within:
        allowance.check(request, "gvisor")
        return
    with pytest.raises(Denied):
        allowance.check(request, "gvisor")


def test_old_files_keep_their_meaning(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(f'[one]\ntoken = "{ONE}"\nsandboxes = 3\n')
    (tenant,) = read(path, None).values()
    assert (tenant.name, tenant.sandboxes, tenant.shared) == ("one", 3, ())
    assert tenant.allowance == Allowance(network=False)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("network = 1", "bad network"),
        ('egress = "example.org"', "bad egress"),
        ('egress = ["x y"]', "not a domain"),
        ("images = [1]", "bad images"),
        ('memory = "much"', "bad memory"),
        ("memory = 10", "bad memory"),
        ("cpus = 0", "bad cpus"),
        ("processes = true", "bad processes"),
        ("mem = 1", "cannot be read"),
    ],
)
def test_bad_limits_are_refused_in_words(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(f'[one]\ntoken = "{ONE}"\n{line}\n')
    with pytest.raises(BadInput, match=why):
        read(path, None)


def test_tokens_can_be_sent(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text('[one]\ntoken = "a-tök€n-of-the-first-one"\n')
    with pytest.raises(BadInput, match="no header can carry") as refused:
        read(path, None)
    assert "tök" not in str(refused.value)


def test_no_tenant_has_the_owners_name(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(f'[""]\ntoken = "{ONE}"\n')
    with pytest.raises(BadInput, match="cannot be read"):
        read(path, None)


async def test_no_network_comes_back_either(start: Starter) -> None:
    """Neither with a checkpoint nor with a template that were made when there was one."""
    first = start("--engine", "process", "--pool", "0")
    sandbox = await Sandbox.create(
        first.address, token=first.token, network=True, enable_checkpoint=True
    )
    await sandbox.save_template("online")
    await sandbox.checkpoint()
    second = start("--engine", "process", "--pool", "0", "--network", "off")
    assert (await refusal(second, template="online"))["hint"] == "serve --network on"
    with pytest.raises(Unsupported, match="host's network"):
        await Sandbox.attach(
            second.address, sandbox.sandbox_id, sandbox.sandbox_token, token=second.token
        )
