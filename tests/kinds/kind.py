"""One kind of object, and the groups that they come in, as table/*.txt has them.

A file is a group: lines that import what its kinds need, then for each kind a line
`=== library: name`, the code that makes it, a line `---`, and the code that uses it.
"""

from __future__ import annotations

import functools
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from tests.kinds.environment import has

TABLE = Path(__file__).with_name("table")
_HEAD = re.compile(r"^=== ([^:\n]+): (.+)\n", re.MULTILINE)
_NEEDS = re.compile(r"^# needs: (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Kind:
    """Code that makes an object, and code that uses it.

    `§` stands for the kind's own variable, and begins the names of its others. Each expression
    among the statements of `use` is one observation; what it raises is one, too.
    """

    library: str
    name: str
    make: str
    use: str

    @property
    def title(self) -> str:
        """What the table calls it."""
        return f"{self.library}: {self.name}"

    @property
    def own(self) -> str:
        """What `§` stands for: the same whichever other kinds are there."""
        return f"k{zlib.crc32(self.title.encode()):08x}"

    def named(self, code: str) -> str:
        """Code with the kind's own names in it."""
        return code.replace("§", self.own)


@dataclass(frozen=True, slots=True)
class Group:
    """Kinds that share a session, since they share imports."""

    name: str
    about: str
    setup: str
    kinds: tuple[Kind, ...]
    needs: str = ""  # only some machines have it; what needs it is tried there

    @classmethod
    def read(cls, path: Path) -> Group:
        """A group as its file has it. Raises ValueError for a kind that is not used."""
        head, *rest = _HEAD.split(path.read_text("utf-8"))
        kinds = []
        for library, name, code in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            make, cut, use = code.partition("\n---\n")
            if not cut:
                raise ValueError(f"{path.name}: {library}: {name} has no line `---`")
            kinds.append(Kind(library, name, make.strip() + "\n", use.strip() + "\n"))
        needs = _NEEDS.search(head)
        about = head.partition("\n")[0].removeprefix("# ")
        return cls(path.stem, about, head, tuple(kinds), needs[1] if needs else "")


@functools.cache
def every_group() -> tuple[Group, ...]:
    """All groups, in the order of their names."""
    return tuple(Group.read(path) for path in sorted(TABLE.glob("*.txt")))


def groups() -> tuple[Group, ...]:
    """Those that this machine can try."""
    return tuple(each for each in every_group() if not each.needs or has(each.needs))
