"""The user's own test of a session: a class, a function it calls, an instance, an import."""

from holdfast.session import Session


async def test_checkpoint_restore():
    """Test complete checkpoint/restore cycle."""
    session = Session()
    await session.start()

    # Create state
    await session.execute("""
import math

def calculate_area(r):
    return math.pi * r ** 2

class Circle:
    def __init__(self, radius):
        self.radius = radius

    def area(self):
        return calculate_area(self.radius)

my_circle = Circle(5)
result = my_circle.area()
""")

    # Create checkpoint
    checkpoint_id = await session.checkpoint()

    # Clear namespace (simulate restart)
    await session.execute("globals().clear()")

    # Restore
    await session.restore(checkpoint_id)

    # Verify everything restored
    result = await session.execute("""
[
    'math' in dir(),
    'calculate_area' in dir(),
    'Circle' in dir(),
    'my_circle' in dir(),
    my_circle.area() == result
]
""")
    assert all(result.value)  # All True
    assert len(result.value) == 5
    await session.shutdown()
