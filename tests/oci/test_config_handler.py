"""What a container may ask for, and what it gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.model.errors import BadInput, Denied
from holdfast.oci.config_handler import ConfigHandler, opt_in
from holdfast.oci.constants import DEFAULT_CHECKPOINT_PATH
from holdfast.oci.policy import Policy, policy_or_default, read_policy


def config(*env: str, **annotations: str) -> dict[str, object]:
    named = {name.replace("__", "."): value for name, value in annotations.items()}
    return {"process": {"env": ["PATH=/bin", *env]}, "annotations": named}


def handler(*env: str, policy: Policy | None = None, **annotations: str) -> ConfigHandler:
    return ConfigHandler(policy, config(*env, **annotations))


def test_the_base_path_is_the_default_or_the_policys() -> None:
    assert ConfigHandler().get_checkpoint_base_path() == DEFAULT_CHECKPOINT_PATH
    other = Policy(checkpoint_path="/srv/checkpoints")
    assert ConfigHandler(other).get_checkpoint_base_path() == "/srv/checkpoints"
    shared = Policy(mode="shared", shared_path="/mnt/shared")
    assert ConfigHandler(shared).get_checkpoint_base_path() == "/mnt/shared"


def test_opting_in() -> None:
    assert handler("HOLDFAST_CHECKPOINT=1").opted_in()
    assert handler(holdfast__checkpoint="true").opted_in()
    assert not handler().opted_in()
    assert not handler("HOLDFAST_CHECKPOINT=0").opted_in()
    assert not handler("HOLDFAST_CHECKPOINT=1", holdfast__checkpoint="0").opted_in()
    assert not handler("HOLDFAST_CHECKPOINT=1", "HOLDFAST_CHECKPOINT=").opted_in()
    assert not ConfigHandler(None, {}).opted_in()
    strict = Policy(opt_in="annotation")
    assert not handler("HOLDFAST_CHECKPOINT=1", policy=strict).opted_in()
    assert handler(policy=strict, holdfast__checkpoint="1").opted_in()


def test_a_pods_sandbox_is_never_ours() -> None:
    pause = {"io.kubernetes.cri.container-type": "sandbox", "holdfast.checkpoint": "1"}
    assert not ConfigHandler(None, {"annotations": pause}).opted_in()


def test_identity() -> None:
    def name(*env: str, **annotations: str) -> str:
        return str(handler(*env, **annotations).get_subject("default", "f00"))

    pod = {
        "io__kubernetes__cri__sandbox-namespace": "shop",
        "io__kubernetes__cri__sandbox-name": "web-0",
        "io__kubernetes__cri__container-name": "app",
    }
    assert name() == "container/default/f00"
    assert name(**pod) == "container/default/shop/web-0/app"
    assert name("HOLDFAST_NAME=web", **pod) == "container/default/shop/web"
    assert name(holdfast__name="web", **pod) == "container/default/shop/web"
    assert name("HOLDFAST_NAME=web", holdfast__name="api") == "container/default/api"


@pytest.mark.parametrize("strict", [Policy(names="annotation"), Policy(opt_in="annotation")])
def test_policy_forbids_names_from_variables(strict: Policy) -> None:
    found = opt_in(strict, config("HOLDFAST_NAME=shop", holdfast__checkpoint="1"), "default", "f00")
    if strict.opt_in == "any":
        found = opt_in(
            strict, config("HOLDFAST_CHECKPOINT=1", "HOLDFAST_NAME=shop"), "default", "f"
        )
    assert found.wishes is None
    assert isinstance(found.trouble, Denied)
    named = handler(policy=strict, holdfast__name="shop").get_subject("default", "f00")
    assert str(named) == "container/default/shop"


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "@ledger", "x" * 300])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    found = opt_in(
        Policy(), config("HOLDFAST_CHECKPOINT=1", f"HOLDFAST_NAME={name}"), "default", "f00"
    )
    assert found.wishes is None
    assert isinstance(found.trouble, BadInput)


def test_a_container_chooses_only_what_the_policy_allows(tmp_path: Path) -> None:
    with pytest.raises(Denied, match="mode"):
        handler("HOLDFAST_MODE=store").get_mode()
    assert handler("HOLDFAST_MODE=store", policy=Policy(modes=("store",))).get_mode() == "store"
    with pytest.raises(BadInput):
        handler("HOLDFAST_MODE=cloud").get_mode()

    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "out").symlink_to("/etc")
    policy = Policy(allowed_paths=(str(allowed),))
    good = str(allowed / "a")
    assert handler(f"HOLDFAST_PATH={good}", policy=policy).get_checkpoint_base_path() == good
    for bad in ("/etc", f"{allowed}/../x", f"{allowed}/out/x", f"{allowed}x", "relative"):
        with pytest.raises(Denied):
            handler(f"HOLDFAST_PATH={bad}", policy=policy).get_checkpoint_base_path()


def test_a_policy_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    assert read_policy(path) == Policy()
    path.write_text('mode = "store"\nstore = "/srv/store"\nrestore_limit = 5\n')
    assert read_policy(path) == Policy(mode="store", store="/srv/store", restore_limit=5)


@pytest.mark.parametrize(
    "text",
    [
        'mode = "cloud"',
        "restore_limit = 0",
        "no_such_key = 1",
        'checkpoint_path = "relative"',
        'mode = "shared"',
        "not toml",
    ],
)
def test_a_policy_that_makes_no_sense_is_told_and_the_defaults_hold(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    policy, trouble = policy_or_default(path)
    assert policy == Policy()
    assert isinstance(trouble, BadInput)


def test_a_policy_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('checkpoint_path = "/srv"')
    path.chmod(0o666)
    assert isinstance(policy_or_default(path)[1], Denied)
    path.chmod(0o644)
    tmp_path.chmod(0o777)
    assert isinstance(policy_or_default(path)[1], Denied)
    tmp_path.chmod(0o700)
    assert os.geteuid() == 0, "this test needs root"
    os.chown(path, 65534, 65534)
    assert isinstance(policy_or_default(path)[1], Denied)
