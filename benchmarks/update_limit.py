"""PPO's compiled gradient steps against what their arithmetic alone takes here.

The limit is the sum, for the same sizes: every matrix product of a step by PyTorch's own routine,
the cheapest accurate tanh, and Adam, the last two fused and in registers. Interleaved rounds, one
thread, pinned by whoever calls it. Prints the rate of environments with the policy too.
"""

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from interleaved import in_turns, sessions
from rlbench.spec.job import Job
from rlbench.training.program import tanh_by_exp
from rlbench.training.session import Session

ROUNDS = 7
HIDDEN = (128, 128)
CASES = ((8, 2000, 64, 10), (64, 8192, 512, 10), (1024, 32768, 1024, 4))
"""Environments, steps per update, samples per minibatch, epochs."""
CHAIN = 16
"""How often an elementwise function is applied to what is in registers."""


def job(num_envs: int, batch_size: int, minibatch: int, epochs: int) -> Job:
    """PPO on Pendulum-v1 in its fastest mode."""
    settings = {"minibatch_size": minibatch, "epochs": epochs, "hidden_sizes": HIDDEN}
    return Job.model_validate(
        {
            "environment": "Pendulum-v1",
            "num_envs": num_envs,
            "batch_size": batch_size,
            "device": "cpu",
            "seed": 0,
            "total_steps": 10 * batch_size,
            "compile": "always",
            "vector_mode": "fused",
            "algorithm": {"name": "ppo", "activation": "tanh"} | settings,
        }
    )


def seconds_of(work: Callable[[], object], least_s: float = 0.05) -> float:
    """Seconds of a call, a mean over as many as take so long."""
    work()
    calls, start = 0, perf_counter()
    while perf_counter() - start < least_s:
        work()
        calls += 1
    return (perf_counter() - start) / calls


def products(observation_size: int, minibatch: int) -> list[Callable[[], object]]:
    """The matrix products of one step: forward, to the weights, and back to the layer before."""
    works: list[Callable[[], object]] = []
    for network_outputs in (1, 1):
        for i, (inputs, outputs) in enumerate(
            pairwise((observation_size, *HIDDEN, network_outputs))
        ):
            x, w = torch.randn(minibatch, inputs), torch.randn(inputs, outputs)
            y = torch.randn(minibatch, outputs)
            works.append(product(x, w))
            works.append(product(x.T, y))
            if i:
                works.append(product(y, w.T))
    return works


def product(a: Tensor, b: Tensor) -> Callable[[], object]:
    """One matrix product into memory that is there."""
    out = torch.empty(a.shape[0], b.shape[1])
    return lambda: torch.mm(a, b, out=out)


def per_element(function: Callable[[Tensor], Tensor]) -> Callable[[], float]:
    """Seconds per element of an elementwise function, compiled, on data in registers."""
    x = torch.rand(2**16)

    def chain(x: Tensor) -> Tensor:
        for _ in range(CHAIN):
            x = function(x)
        return x

    compiled = torch.compile(chain, fullgraph=True, dynamic=False)
    return lambda: seconds_of(lambda: compiled(x)) / (CHAIN * x.numel())


def adam(x: Tensor) -> Tensor:
    """Adam's arithmetic on one number, which serves as weight, moments and gradient."""
    m = 0.9 * x + 0.1 * x
    v = 0.999 * x + 0.001 * x * x
    return x - 1e-3 * m / (v.sqrt() + 1e-8)


def limit(session: Session, minibatch: int) -> Callable[[], float]:
    """Seconds that the arithmetic of one gradient step takes."""
    works = products(session.envs.spec.observation_size, minibatch)
    of_tanh, of_adam = per_element(tanh_by_exp), per_element(adam)
    activations = 2 * sum(HIDDEN) * minibatch
    networks = session.actor, session.critic
    weights = sum(p.numel() for network in networks for p in network.parameters())

    def arm() -> float:
        matrices = sum(seconds_of(work, 0.005) for work in works)
        return matrices + activations * of_tanh() + weights * of_adam()

    return arm


def main() -> None:
    """Print a table per case."""
    torch.set_num_threads(1)
    for case in CASES:
        num_envs, batch_size, minibatch, epochs = case
        with sessions({"ppo": job(*case)}) as opened:
            session = opened["ppo"]
            collect: list[float] = []

            def step(session: Session = session, collect: list[float] = collect) -> float:
                """Seconds per gradient step of one update."""
                watch = session.stopwatch
                start = watch.now()
                steps = session.job.rollout_steps
                rollout, _ = session.collector.collect(steps, None, watch)
                middle = watch.now()
                collect.append(middle - start)
                session.learner.update(rollout, remaining=1.0)
                parts = session.job.algorithm.steps_per_batch(session.job.actual_batch)
                return (watch.now() - middle) / parts

            seconds = in_turns({"update": step, "limit": limit(session, minibatch)}, ROUNDS)
        title = f"{num_envs} environments, {batch_size:,} steps per update, minibatch {minibatch}"
        print(f"\nPPO, Pendulum-v1, {title}, {epochs} epochs, 2 x 128; medians of {ROUNDS}")
        took, least = median(seconds["update"]), median(seconds["limit"])
        print(
            f"  gradient step {1e3 * took:7.3f} ms, arithmetic {1e3 * least:7.3f} ms: "
            f"{100 * least / took:.0f} % of the limit"
        )
        rate = batch_size / median(collect[1:])
        print(f"  environments and policy {rate:11,.0f} steps/s")


if __name__ == "__main__":
    main()
