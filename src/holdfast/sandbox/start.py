"""What is to be started inside of a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program to be started, or a file verb (`call`, with its own fields)."""

    argv: Sequence[str] = ()
    call: Mapping[str, object] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/root"
    size: tuple[int, int] | None = None  # rows and columns of a terminal
    stdin: bool = True
    limits: Mapping[str, int] = field(default_factory=dict)
    offline: bool = False  # without a socket of any network, not even the loopback's
    warm: bool = False  # code for an interpreter, of which a copy would do

    def moved(self, places: Mapping[str, str]) -> Start:
        """The same where a sandbox has no root of its own: paths that stand alone are what they
        mean there. What is inside of code or of files stays as it is."""

        def there(text: str) -> str:
            for place, real in places.items():
                if text == place or text.startswith(f"{place}/"):
                    return real + text.removeprefix(place)
            return text

        env = {name: ":".join(map(there, value.split(":"))) for name, value in self.env.items()}
        call = self.call and {
            name: there(value) if name in ("path", "to") and isinstance(value, str) else value
            for name, value in self.call.items()
        }
        return replace(
            self,
            argv=[there(word) for word in self.argv],
            call=call,
            env={"TMPDIR": there("/tmp"), **env},
            cwd=there(self.cwd),
        )
