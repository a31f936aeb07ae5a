"""Where calls arrive: the tool is found, its arguments are read, its subject's level does it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.errors import BadInput, NotFound, Unsupported
from holdfast.model.subject import KINDS, Subject
from holdfast.server.mcp import answers
from holdfast.server.mcp import arguments as given
from holdfast.server.mcp.contract import Level, Progress
from holdfast.server.mcp.masking import Masks, masked
from holdfast.server.mcp.resources import MOST_LISTED, Address
from holdfast.server.mcp.tools import BY_NAME


class Desk:
    """Knows no protocol: names and plain data in, answers out. Raises HoldfastError."""

    def __init__(
        self,
        sessions: Level,
        sandboxes: Level | None = None,
        *,
        default: str = "main",
        show_secrets: bool = False,
    ) -> None:
        self._levels = {"session": sessions, "sandbox": sandboxes}
        self._default = self._subject(default)
        self._show_secrets = show_secrets

    async def call(
        self, name: str, arguments: Mapping[str, Any], progress: Progress
    ) -> answers.Answer:
        """Do what a tool does. Raises NotFound for an unknown one."""
        tool = BY_NAME.get(name)
        if tool is None:
            raise NotFound(f"no such tool: {name!r:.100}", hint=f"one of {', '.join(BY_NAME)}")
        try:
            asked = msgspec.convert(dict(arguments), tool.arguments)
        except msgspec.ValidationError as error:
            raise BadInput(f"{name}: {error}", hint="look at the tool's input schema") from None
        subject = self._default if asked.subject is None else self._subject(asked.subject)
        if isinstance(asked, given.List) and asked.subject is None:
            return await self.everything(asked)
        answer = await tool.call(self._level(subject), subject.name, asked, progress)
        if isinstance(answer, answers.Executed) and not self._show_secrets:
            return await asyncio.to_thread(masked, answer)
        return answer

    async def read(self, uri: str) -> dict[str, object]:
        """One checkpoint. Raises BadInput and NotFound."""
        address = Address.parse(uri)
        level = self._level(address.subject)
        told = await level.show(address.subject.name, address.reference)
        return told if self._show_secrets else await asyncio.to_thread(Masks().value, told)

    async def everything(self, asked: given.List) -> answers.Listed:
        """All subjects, and the latest checkpoints of any."""
        found = [
            await level.list(None, asked) for level in self._levels.values() if level is not None
        ]
        moments = sorted(
            {each.id: each for told in found for each in told.checkpoints}.values(),
            key=lambda each: each.time,
            reverse=True,
        )
        return answers.Listed(
            subject="",
            subjects=tuple(each for told in found for each in told.subjects),
            checkpoints=tuple(moments[: asked.limit]),
        )

    async def completions(self, variable: str, begun: str, subject: str) -> list[str]:
        """What a variable of the resources' address could be."""
        latest = given.List(limit=MOST_LISTED)
        if variable == "subject":
            found = [each.subject for each in (await self.everything(latest)).subjects]
        elif subject:
            parsed = self._subject(subject)
            level = self._level(parsed)
            told = await level.list(parsed.name, latest)
            found = [each.id for each in told.checkpoints]
        else:
            found = []
        return [each for each in found if each.startswith(begun)]

    async def close(self) -> None:
        for level in self._levels.values():
            if level is not None:
                await level.close()

    def _subject(self, text: str) -> Subject:
        kind = text.partition("/")[0]
        return Subject.parse(text if "/" in text and kind in KINDS else f"session/{text}")

    def _level(self, subject: Subject) -> Level:
        level = self._levels.get(subject.kind)
        if level is not None:
            return level
        if subject.kind == "sandbox":
            raise Unsupported(
                "there are no sandboxes here",
                hint="start `holdfast serve`, then `holdfast mcp --server URL`",
            )
        raise Unsupported(
            f"these tools work on sessions and sandboxes, not on {subject}",
            hint="the command line knows every kind",
        )
