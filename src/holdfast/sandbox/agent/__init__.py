"""The first process inside a sandbox: starts programs, carries their streams, reaps the dead.

Nothing but the standard library, because it runs in roots that hold nothing else of ours. It
speaks frames on its standard streams (spec/sandbox-v1.md, section 2) and ends with them.
"""

USER = 60999  # who programs run as; beyond what people and packages use
# Children that wait to become a program. In gVisor forking one takes longer than a small program
# runs, and programs often follow each other closely.
SPARES = 3
OWN_PROCESSES = 1 + SPARES
