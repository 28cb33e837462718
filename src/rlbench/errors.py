"""What can go wrong, by whose turn it is to act.

RlbenchError
├── InputError   the user's input is wrong; exit code 2, nothing was started
└── RunFailed    a run started and could not be trusted to its end; exit code 1
"""


class RlbenchError(Exception):
    """A message for a person: what, got, allowed, what to do."""

    exit_code = 1


class InputError(RlbenchError):
    """The request cannot be carried out as it stands."""

    exit_code = 2


class RunFailed(RlbenchError):
    """A run ended early; its rows are not to be trusted and were not written."""
