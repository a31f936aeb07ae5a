"""Every path, name and number that the wrapper assumes unless somebody says otherwise."""

from __future__ import annotations

DEFAULT_CHECKPOINT_PATH = "/var/lib/holdfast/checkpoints"
DEFAULT_WORK_PATH = "/var/lib/holdfast/work"
DEFAULT_LEDGER_PATH = "/var/lib/holdfast/ledgers"
DEFAULT_POLICY_PATH = "/etc/holdfast/policy.toml"
DEFAULT_RUN_PATH = "/run/holdfast"
DEFAULT_LOG_PATH = "/var/log/holdfast/runc.log"

RUNC_ROOT = "/run/runc"  # where runc keeps its state when nobody says otherwise
DEFAULT_NAMESPACE = "default"

ANNOTATION_PREFIX = "holdfast."
VARIABLE_PREFIX = "HOLDFAST_"

POLICY_VARIABLE = "HOLDFAST_POLICY"
RUN_VARIABLE = "HOLDFAST_RUN"
RUNC_VARIABLE = "HOLDFAST_RUNC"

FORMAT = 1
INCREMENT_FORMAT = 2  # of a manifest that names a parent
COMPRESSED_FORMAT = 3  # of one with parts that are compressed, with or without a parent
