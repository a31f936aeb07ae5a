"""Libraries that people work with, in an environment of their own, and what comes back of them.

`scripts/setup-python kinds` (part of `make setup-test`) makes `.cache/kinds`: some 45 libraries
from requirements/kinds.txt, torch where pip finds a wheel of it, and this project in place. pytest
itself runs in .venv, as everywhere; only the workers run there:

    from tests.kinds.environment import python

    with sync.Session("work", store="memory://", python=python()) as session: ...

`python()` fails the test with the command to type when the environment is missing. It has
ipykernel, too, so a kernel of it takes `%load_ext holdfast`; and jupyter-client.

- kind.py: one kind of object: code that makes it and code that uses it
- table/: the kinds, a file for each group of libraries
- observer.py: makes, uses and writes down what was seen; imports nothing of Holdfast
- trial.py: the same kinds through a session, dill and cloudpickle, and without any of them
- test_table.py: that they come back
"""
