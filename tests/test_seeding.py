import torch

from rlbench.training.seeding import Streams, open_streams

CPU = torch.device("cpu")


def streams(seed: int, num_envs: int = 8, eval_episodes: int = 5) -> Streams:
    return open_streams(seed, num_envs, eval_episodes, CPU)


def test_neighbouring_seeds_share_no_environment() -> None:
    """Public bug: `seed + i` makes seeds 0 and 1 share 7 of 8 environments."""
    drawn = [s for seed in range(5) for s in streams(seed).env_seeds]
    assert len(set(drawn)) == 40
    assert max(drawn) < 2**31


def test_evaluation_shares_no_environment_with_training() -> None:
    drawn = [s for seed in range(20) for s in streams(seed).eval_seeds + streams(seed).env_seeds]
    assert len(set(drawn)) == 20 * 13


def test_more_environments_keep_the_streams_of_fewer() -> None:
    assert streams(3, num_envs=64).env_seeds[:8] == streams(3, num_envs=8).env_seeds
    assert streams(3, eval_episodes=50).eval_seeds[:5] == streams(3).eval_seeds


def test_the_streams_of_a_seed_repeat_and_differ_from_each_other() -> None:
    first, again = streams(7), streams(7)
    draws = []
    for name in ("initialisation", "noise", "shuffling"):
        one = torch.randn(4, generator=getattr(first, name))
        torch.testing.assert_close(
            one, torch.randn(4, generator=getattr(again, name)), rtol=0, atol=0
        )
        draws.append(tuple(one.tolist()))
    assert len(set(draws)) == 3


def test_the_number_of_environments_does_not_move_the_other_streams() -> None:
    one, many = streams(7, num_envs=1), streams(7, num_envs=64)
    assert torch.equal(torch.randn(4, generator=one.noise), torch.randn(4, generator=many.noise))
