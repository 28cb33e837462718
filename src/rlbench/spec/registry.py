"""Which algorithms there are: ours, those of peers, and those that other packages bring.

In:      entry points of the group `rlbench.algorithms`.
Out:     the settings class of each algorithm by its name.
"""

import warnings
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Union, get_args

from pydantic import Field

from rlbench.spec.algorithms import A2C, NPG, PPO, PPOKL, TRPO, OnPolicy
from rlbench.spec.peers import SB3PPO, SB3TRPO, SBXPPO

GROUP = "rlbench.algorithms"
"""Group of entry points; each names a settings class, which names its learner."""
OWN: tuple[type[OnPolicy], ...] = (PPO, PPOKL, A2C, TRPO, NPG)
PEERS: tuple[type[OnPolicy], ...] = (SB3PPO, SB3TRPO, SBXPPO)


def brought(found: EntryPoint) -> type[OnPolicy] | None:
    """The settings class behind an entry point; None, with a warning, if it is none of ours."""
    try:
        model: type[OnPolicy] = found.load()
        name = model.model_fields["name"]
        named = get_args(name.annotation) == (name.default,)
        if issubclass(model, OnPolicy) and named and (model.learner or model.agent):
            return model
        reason = "must be a subclass of OnPolicy with one Literal as its name, and a learner"
    except Exception as error:  # noqa: BLE001 (whatever another package does at its import)
        reason = f"{type(error).__name__}: {error}"
    warnings.warn(f"algorithm '{found.name}' ({found.value}) is left out: {reason}", stacklevel=2)
    return None


ALGORITHMS: dict[str, type[OnPolicy]] = {}
"""Settings class of each algorithm by name: ours, then peers', then others'."""
_others = [brought(found) for found in entry_points(group=GROUP)]
for _model in (*OWN, *PEERS, *(model for model in _others if model is not None)):
    ALGORITHMS.setdefault(_model.model_fields["name"].default, _model)

if TYPE_CHECKING:
    AnyAlgorithm = OnPolicy
else:
    AnyAlgorithm = Annotated[Union[tuple(ALGORITHMS.values())], Field(discriminator="name")]  # noqa: UP007
