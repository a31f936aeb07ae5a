"""What a container gets for its rehearsal: a place of its own, and nothing of its node."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model.errors import Unsupported
from holdfast.oci.rehearsal import script


def a_config(**changes: Any) -> dict[str, Any]:
    """As containerd gives one: hooks, a joined network, a folder of the node."""
    return {
        "process": {"terminal": False, "args": ["count"]},
        "root": {"path": "/var/lib/images/7", "readonly": True},
        "hooks": {"prestart": [{"path": "/usr/bin/setup-network"}]},
        "annotations": {"of": "the engine"},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/data", "type": "bind", "source": "/srv/data"},
            {"destination": "/more", "source": "/srv/data", "options": ["rbind", "ro"]},
        ],
        "linux": {
            "cgroupsPath": "/engine/7",
            "intelRdt": {"closID": "node"},
            "namespaces": [
                {"type": "pid"},
                {"type": "mount"},
                {"type": "network", "path": "/run/netns/7"},
            ],
        },
        **changes,
    }


def test_it_touches_nothing_of_its_node() -> None:
    config = a_config()
    assert script.bound(config) == ["/srv/data"]
    assert script.joins_network(config)
    made = script.harmless(
        config,
        cgroup="/own",
        criu="/own/criu.conf",
        network="/own/net",
        sources={"/srv/data": "/x"},
    )
    assert "hooks" not in made
    assert made["root"] == {"path": "rootfs", "readonly": True}
    assert made["annotations"] == {"org.criu.config": "/own/criu.conf"}
    assert [mount["source"] for mount in made["mounts"]] == ["proc", "/x", "/x"]
    assert made["linux"] == {
        "cgroupsPath": "/own",
        "namespaces": [
            {"type": "pid"},
            {"type": "mount"},
            {"type": "network", "path": "/own/net"},
        ],
    }
    assert config == a_config()  # the container's own is left alone


def test_a_network_of_its_own_is_made_anew() -> None:
    config = a_config(linux={"namespaces": [{"type": "network"}, {"type": "pid"}]})
    assert not script.joins_network(config)
    made = script.harmless(
        config, cgroup="/own", criu="c", network=None, sources={"/srv/data": "/x"}
    )
    assert made["linux"]["namespaces"] == [{"type": "network"}, {"type": "pid"}]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"process": {"terminal": True}}, "a terminal"),
        ({"linux": {"namespaces": [{"type": "pid"}]}}, "the network of its node"),
        ({"linux": {"namespaces": [{"type": "network"}]}}, "its processes with others"),
        (
            {"linux": {"namespaces": [{"type": "network"}, {"type": "pid", "path": "/proc/1"}]}},
            "its processes with others",
        ),
    ],
)
def test_what_would_meet_others_is_refused(changes: dict[str, Any], why: str) -> None:
    script.check(a_config())
    with pytest.raises(Unsupported, match=why):
        script.check(a_config(**changes))
