"""What applications keep: a conversation that grows, and a large state of which little changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

State = dict[str, Any]


class Texts:
    """Words that no two runs differ in."""

    def __init__(self, seed: int = 7) -> None:
        self.chance = random.Random(seed)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = [
            "".join(self.chance.choice(letters) for _ in range(self.chance.randint(2, 10)))
            for _ in range(3000)
        ]

    def text(self, size: int) -> str:
        words: list[str] = []
        length = 0
        while length < size:
            words.append(self.chance.choice(self._words))
            length += len(words[-1]) + 1
        return " ".join(words)[:size]


def chat(steps: int = 200) -> Iterator[State]:
    """A message of 2 KB more at each step."""
    texts = Texts()
    messages: list[State] = []
    for step in range(steps):
        role = "assistant" if step % 2 else "user"
        messages = [*messages, {"role": role, "id": f"m{step}", "content": texts.text(1960)}]
        yield {"messages": messages}


def large(steps: int = 40) -> Iterator[State]:
    """500 texts of 10 KB, of which 5 change at each step."""
    texts = Texts()
    data = {f"k{number}": texts.text(10_000) for number in range(500)}
    for _ in range(steps):
        data = dict(data)
        for key in texts.chance.sample(list(data), 5):
            data[key] = texts.text(10_000)
        yield {"data": data}
