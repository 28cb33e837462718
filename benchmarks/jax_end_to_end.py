"""PPO on Pendulum with everything, environment included, in one JAX program: an upper anchor.

In:      numbers of environments, steps per update, samples per minibatch, units per layer.
Out:     a call that does one full update and gives its seconds.
Source:  the arrangement of Lu et al. 2022, "Discovered Policy Optimisation" (PureJaxRL): rollout,
         advantages and all minibatches of all epochs are scans of one compiled function.

What it leaves out of a benchmark: rows of episodes, evaluations, seeds per environment, Gymnasium's
rounding, checks for numbers that are not finite.
"""

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

GAMMA, LAMBDA, RATE, CLIP, EPOCHS = 0.98, 0.9, 1e-3, 0.2, 10
LAST_STEP, TORQUE, SPEED = 200, 2.0, 8.0


def one_thread() -> None:
    """One thread on the CPU, for fairness; before JAX is first imported."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("XLA_FLAGS", one)


def make_update(num_envs: int, batch_size: int, minibatch: int, units: int) -> Callable[[], float]:
    """One full update as a call; the first also compiles."""
    one_thread()
    import jax
    from jax import numpy as jnp

    steps, parts = batch_size // num_envs, batch_size // minibatch

    def network(key: Any, outputs: int, gain: float) -> list[Any]:
        sizes = [(3, units, 2**0.5), (units, units, 2**0.5), (units, outputs, gain)]
        return [
            (jax.nn.initializers.orthogonal(g)(k, (i, o)), jnp.zeros(o))
            for k, (i, o, g) in zip(jax.random.split(key, 3), sizes, strict=True)
        ]

    def apply(layers: list[Any], x: Any) -> Any:
        for weight, bias in layers[:-1]:
            x = jnp.tanh(x @ weight + bias)
        return x @ layers[-1][0] + layers[-1][1]

    def observe(angle: Any, speed: Any) -> Any:
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed], 1)

    def fresh(key: Any) -> Any:
        one, other = jax.random.split(key)
        return (
            jax.random.uniform(one, (num_envs,), minval=-jnp.pi, maxval=jnp.pi),
            jax.random.uniform(other, (num_envs,), minval=-1.0, maxval=1.0),
        )

    def log_prob(noise: Any, log_std: Any) -> Any:
        return (-0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)).sum(-1)

    def act(carry: Any, _: None) -> Any:
        """One step of all environments; what a rollout keeps of it."""
        weights, (angle, speed, clock), key = carry
        key, for_noise, for_reset = jax.random.split(key, 3)
        seen = observe(angle, speed)
        noise = jax.random.normal(for_noise, (num_envs, 1))
        action = TORQUE * apply(weights["actor"], seen) + jnp.exp(weights["log_std"]) * noise
        torque = jnp.clip(action[:, 0], -TORQUE, TORQUE)
        turned = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        reward = -0.1 * (turned**2 + 0.1 * speed**2 + 0.001 * torque**2)
        speed = jnp.clip(speed + (15 * jnp.sin(angle) + 3 * torque) * 0.05, -SPEED, SPEED)
        angle, clock = angle + speed * 0.05, clock + 1
        final, ended = observe(angle, speed), clock >= LAST_STEP
        new_angle, new_speed = fresh(for_reset)
        angle, speed = jnp.where(ended, new_angle, angle), jnp.where(ended, new_speed, speed)
        state = angle, speed, jnp.where(ended, 0, clock)
        kept = seen, action, log_prob(noise, weights["log_std"]), reward, ended, final
        return (weights, state, key), kept

    def loss(weights: Any, sample: Any) -> Any:
        seen, action, old_log_prob, advantage, target = sample
        mean = TORQUE * apply(weights["actor"], seen)
        noise = (action - mean) * jnp.exp(-weights["log_std"])
        ratio = jnp.exp(log_prob(noise, weights["log_std"]) - old_log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage
        error = apply(weights["critic"], seen)[:, 0] - target
        return -jnp.minimum(ratio * advantage, clipped).mean() + 0.5 * (error**2).mean()

    def adam(carry: Any, sample: Any) -> Any:
        weights, m, v, t = carry
        gradient = jax.grad(loss)(weights, sample)
        norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradient)))
        gradient = jax.tree.map(lambda g: g * jnp.minimum(1.0, 0.5 / (norm + 1e-6)), gradient)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, gradient)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, gradient)
        weights = jax.tree.map(
            lambda w, m, v: (
                w - RATE * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
            ),
            weights, m, v,
        )  # fmt: skip
        return (weights, m, v, t), None

    @jax.jit
    def update(carry: Any) -> Any:
        weights, m, v, t, state, key = carry
        (_, state, key), kept = jax.lax.scan(act, (weights, state, key), None, steps)
        seen, action, log_probs, rewards, ended, final = kept
        values, following = (apply(weights["critic"], x)[..., 0] for x in (seen, final))

        def backwards(later: Any, row: Any) -> Any:
            reward, end, value, after = row
            advantage = reward + GAMMA * after - value + GAMMA * LAMBDA * (1 - end) * later
            return advantage, advantage

        rows = rewards, ended, values, following
        _, advantages = jax.lax.scan(backwards, jnp.zeros(num_envs), rows, reverse=True)
        columns = seen, action, log_probs, advantages, advantages + values
        flat = [column.reshape(steps * num_envs, *column.shape[2:]) for column in columns]

        def epoch(carry: Any, key: Any) -> Any:
            order = jax.random.permutation(key, steps * num_envs)[: parts * minibatch]
            samples = [x[order].reshape(parts, minibatch, *x.shape[1:]) for x in flat]
            return jax.lax.scan(adam, carry, samples)[0], None

        key, *keys = jax.random.split(key, EPOCHS + 1)
        (weights, m, v, t), _ = jax.lax.scan(epoch, (weights, m, v, t), jnp.stack(keys))
        return weights, m, v, t, state, key

    key, *keys = jax.random.split(jax.random.key(0), 4)
    weights = {
        "actor": network(keys[0], 1, 0.01),
        "critic": network(keys[1], 1, 1.0),
        "log_std": jnp.zeros(1),
    }
    nothing = jax.tree.map(jnp.zeros_like, weights)
    state = (*fresh(keys[2]), jnp.zeros(num_envs, int))
    held = [(weights, nothing, nothing, jnp.zeros(()), state, key)]

    def arm() -> float:
        start = perf_counter()
        held[0] = jax.block_until_ready(update(held[0]))  # type: ignore[no-untyped-call]
        return perf_counter() - start

    return arm
