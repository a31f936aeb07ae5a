"""Checkpoints of anything, straight on the store: write, compare, go back, fork, tidy up.

Run it with `python examples/store.py`; it uses a store in memory and leaves nothing behind.
"""

from __future__ import annotations

from holdfast import open_store


def main() -> None:
    with open_store("memory://") as store:
        for epoch, loss in enumerate((0.9, 0.4, 0.7)):
            with store.draft("state/training", reason=f"epoch {epoch}") as draft:
                draft.put("metrics", {"epoch": epoch, "loss": loss}, split="structure")
                draft.put("weights", bytes([epoch]) * 1_000_000)
                checkpoint = draft.commit()
            store.tag(checkpoint, "loss", str(loss))

        print("checkpoints, newest first:")
        for checkpoint in store.list("state/training"):
            print(f"  {checkpoint.reason}: {checkpoint.size_bytes} bytes")

        for change in store.diff("state/training~1", "state/training").values:
            print(f"the last epoch changed {change.path}: {change.before} -> {change.after}")

        back = store.rollback("state/training")
        print("after the rollback:", store.value(back, "metrics"))

        fork = store.fork(back, "variant")
        print("a fork:", fork.subject)

        print("everything is there:", store.verify(deep=True).ok)


if __name__ == "__main__":
    main()
