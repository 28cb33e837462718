"""One run as a value: its JSON is its identity.

In:      settings of the run and of its algorithm.
Out:     a frozen Job; `Job.model_validate_json(job.model_dump_json()) == job`.
"""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rlbench.spec.algorithms import Count, Whole
from rlbench.spec.registry import AnyAlgorithm
from rlbench.spec.settings import Settings

Seed = Annotated[Whole, Field(ge=0)]
VectorMode = Literal["auto", "sync", "async", "native", "fused", "envpool"]


class RunSettings(Settings):
    """What a run needs besides its place in the grid."""

    batch_size: Count = 2000
    """Environment steps per update, over all environments."""
    vector_mode: VectorMode = "auto"
    """Environments in this process (sync), one process each (async), as one array (native:
    Pendulum, CartPole, MountainCarContinuous, Acrobot), native and compiled with the policy into
    one program on the device (fused: the same up to float rounding), or the fastest of these
    (auto; fused only where gradient steps are compiled too). In threads of C++ (envpool):
    Gymnasium's equations but other start states, so never by auto."""
    cpu_threads: Count = 1
    """Threads of PyTorch on the CPU; inter-op threads are at most 4 of them."""
    matmul_precision: Literal["highest", "high", "medium"] = "high"
    """float32 matrix products on CUDA: exact, TF32, or bfloat16. No effect on most CPUs."""
    deterministic: Literal["always", "never"] = "always"
    """Whether PyTorch may only use algorithms that repeat bit by bit (slower on CUDA)."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Minibatch gradient steps (of TRPO and NPG: the natural step too) as compiled programs; auto:
    on a CPU with a C++ compiler, if there are enough steps to pay for it."""
    eval_every_steps: Count = 10_000
    """Environment steps between evaluations; there is one before training and one at the end."""
    eval_episodes: Count = 20
    """Episodes per evaluation, from the same start states each time, actions without noise."""
    eval_max_steps: Count = 100_000
    """Steps after which an evaluation episode that does not end fails the run."""
    env_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Seconds that an environment process may take for one step or reset before the run fails."""


class Job(RunSettings):
    """One training run: everything that decides its rows."""

    environment: Annotated[str, Field(min_length=1)]
    """Gymnasium id, `Name-v0` or `module:Name-v0`."""
    num_envs: Count
    """Environments stepped in parallel."""
    device: Literal["cpu", "cuda"]
    """Where the networks live."""
    seed: Seed
    """Root of all random streams."""
    total_steps: Count | None = None
    """Budget in environment steps over all environments."""
    num_episodes: Count | None = None
    """Budget in finished episodes over all environments."""
    algorithm: AnyAlgorithm
    """Algorithm and its hyperparameters."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if (self.total_steps is None) == (self.num_episodes is None):
            raise ValueError("give exactly one budget: total_steps or num_episodes")
        if self.vector_mode == "fused" and self.compile == "never":
            raise ValueError(
                "vector_mode 'fused' is a compiled program, and compile is 'never'; set compile to "
                "'auto', or vector_mode to 'native'"
            )
        if self.vector_mode == "fused" and self.algorithm.agent:
            raise ValueError(
                f"vector_mode 'fused' has rollouts of our own, and '{self.algorithm.name}' gathers "
                "its experience itself; set vector_mode to 'native'"
            )
        if self.num_envs > self.batch_size:
            raise ValueError(
                f"num_envs {self.num_envs} is more than batch_size {self.batch_size}: a batch "
                "needs at least one step of each environment; raise batch_size or lower num_envs"
            )
        return self

    @property
    def rollout_steps(self) -> int:
        """T: steps per environment between updates."""
        return math.ceil(self.batch_size / self.num_envs)

    @property
    def actual_batch(self) -> int:
        """B = T N: transitions per full update, batch_size rounded up to whole steps."""
        return self.rollout_steps * self.num_envs


class Timing(Settings):
    """How often speed is measured."""

    updates: Count = 3
    """Timed updates per repeat."""
    warmup_updates: Count = 1
    """Updates per repeat before the timed ones; recorded, left out by the analysis."""
    repeats: Count = 3
    """Fresh starts within one process."""


class ThroughputJob(Timing):
    """One speed measurement: full updates of a job, over and over, and nothing else."""

    job: Job
    """The job whose algorithm, environment and device are timed."""
