"""How often something survived, and why it was left alone elsewhere."""

from __future__ import annotations

from collections import Counter


class Count:
    """Of one level, in one process."""

    def __init__(self) -> None:
        self.done = 0
        self.here = 0  # of them in the test that runs
        self.reasons: Counter[str] = Counter()

    def next_test(self) -> None:
        """Another test begins."""
        self.here = 0

    def crossed(self) -> None:
        """It went through another process."""
        self.done += 1
        self.here += 1

    def left(self, reason: str) -> None:
        """It was left as it is, since it promises nothing there."""
        self.reasons[reason[:120]] += 1

    def __str__(self) -> str:
        most = "".join(f"\n  {n} x {reason}" for reason, n in self.reasons.most_common(5))
        return f"{self.done} survived, {self.reasons.total()} left alone{most}"
