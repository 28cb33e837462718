"""What the sentences say of numbers chosen so that the answer is plain."""

from pathlib import Path

import pytest

from results_folder import (
    ENVIRONMENT,
    Curve,
    handmade_tables,
    make_benchmark,
    plan_of,
    write_learning,
    write_run,
    write_timings,
)
from rlbench.analysis.aggregate import gather
from rlbench.analysis.sentences import answers, cautions, interval
from rlbench.analysis.statistics import Estimate
from rlbench.spec.grid import Arm, Cell


def said(folder: Path, ppo: list[float | None], trpo: list[float | None]) -> str:
    """The one sentence on final returns of two algorithms; None has not finished."""
    plan = plan_of(make_benchmark(num_envs=[1], seeds=list(range(len(ppo)))))
    returns: dict[tuple[str, int], list[Curve | None]] = {
        ("ppo", 1): [None if value is None else (0.0, value) for value in ppo],
        ("trpo", 1): [None if value is None else (0.0, value) for value in trpo],
    }
    write_learning(folder, plan, returns)
    (sentence,) = answers(gather(plan, folder), plan)
    return sentence


def test_a_clear_difference_by_hand(tmp_path: Path) -> None:
    """The middle three of five: 20 and 10; the difference is 10 for every seed."""
    assert said(tmp_path, [0, 10, 20, 30, 500], [-10, 0, 10, 20, 490]).endswith(
        "mean paired difference 10 [10, 10] over 5 seeds: PPO is better."
    )


def test_the_better_one_comes_first(tmp_path: Path) -> None:
    sentence = said(tmp_path, [1, 2, 3, 4, 5], [11, 13, 15, 17, 19])
    assert f"On {ENVIRONMENT} with 1 environment (cpu), TRPO ends at 15 [" in sentence
    assert "and PPO at 3 [" in sentence
    assert sentence.endswith("over 5 seeds: TRPO is better.")


def test_an_interval_across_zero_does_not_decide(tmp_path: Path) -> None:
    sentence = said(tmp_path, [0, 10, 0, 10, 0], [9, 0, 9, 0, 1])
    assert sentence.endswith("the data do not decide between them.")


def test_equal_returns_do_not_decide(tmp_path: Path) -> None:
    assert "0 [0, 0] over 5 seeds: the data do not decide" in said(tmp_path, [7] * 5, [7] * 5)


@pytest.mark.parametrize("seeds", [2, 3])
def test_few_seeds_do_not_decide(tmp_path: Path, seeds: int) -> None:
    """However clear the numbers look."""
    sentence = said(tmp_path, [100] * seeds, [0] * seeds)
    assert sentence.endswith(f"over {seeds} seeds: the data do not decide between them.")


def test_four_pairs_decide_but_not_three_of_four(tmp_path: Path) -> None:
    assert "PPO is better" in said(tmp_path / "four", [9] * 4, [1, 2, 3, 4])
    assert "over 3 seeds: the data do not decide" in said(
        tmp_path / "three", [9] * 4, [1, 2, 3, None]
    )


def test_the_order_follows_the_pairs(tmp_path: Path) -> None:
    """PPO's unpaired seed is its best; on the four that both have, TRPO is ahead by 1."""
    sentence = said(tmp_path, [1, 2, 3, 4, 900], [2, 3, 4, 5, None])
    assert sentence.endswith("1 [1, 1] over 4 seeds: TRPO is better.")


def test_one_seed_says_nothing(tmp_path: Path) -> None:
    sentence = said(tmp_path, [5], [3])
    assert "PPO ends at 5 and TRPO at 3; one seed in both, so the data cannot say" in sentence


def test_seeds_without_a_partner_say_nothing(tmp_path: Path) -> None:
    assert "no seed in both, so the data cannot say" in said(tmp_path, [5, None], [None, 3])


def test_an_algorithm_without_runs_is_not_compared(tmp_path: Path) -> None:
    plan = plan_of(make_benchmark(num_envs=[1]))
    write_learning(tmp_path, plan, {("ppo", 1): [(0, 1), (0, 2), (0, 3)]})
    assert answers(gather(plan, tmp_path), plan) == []


def test_sentences_of_the_hand_made_folder(tmp_path: Path) -> None:
    first, second, *speeds = answers(*handmade_tables(tmp_path))
    assert first.endswith(
        "difference 0 [\N{MINUS SIGN}10, 10] over 2 seeds: the data do not decide between them."
    )
    assert second.startswith(
        f"On {ENVIRONMENT} with 8 environments (cpu), PPO ends at 410 [400, 420] and TRPO at "
        "210 [200, 220]; mean paired difference 195 [190, 200]"
    )
    assert speeds == [
        f"{name} on {ENVIRONMENT} (cpu) makes {one} steps/s with 1 environment and {eight} with 8: "
        f"{ratio} times as many, alone on the machine (median of 3 updates)."
        for name, one, eight, ratio in (("PPO", 50, 250, "5.0"), ("TRPO", 40, 100, "2.5"))
    ]


def test_speed_with_one_num_envs_is_not_a_ratio(tmp_path: Path) -> None:
    plan = plan_of(make_benchmark(num_envs=[8], algorithms=["ppo"]))
    write_timings(tmp_path, plan, Arm("ppo", ENVIRONMENT, 8, "cpu"), [0.5])
    (sentence,) = answers(gather(plan, tmp_path), plan)
    assert "makes 2,000 steps/s with 8 environments, alone on the machine" in sentence


def test_cautions_of_the_hand_made_folder(tmp_path: Path) -> None:
    absent, few = cautions(*handmade_tables(tmp_path))
    assert absent == "2 of 12 cells have no result (1 failed, 1 missing): see below."
    assert few.startswith("Only 2 seeds in some arms: intervals from so few mean little")


def test_few_seeds_are_counted_as_finished(tmp_path: Path) -> None:
    """Five are planned and everywhere three have finished."""
    plan = plan_of(make_benchmark(num_envs=[1], seeds=[0, 1, 2, 3, 4]))
    write_learning(tmp_path, plan, {(name, 1): [(0, 1)] * 3 for name in ("ppo", "trpo")})
    _, few = cautions(gather(plan, tmp_path), plan)
    assert few.startswith("Only 3 seeds per arm")


def test_a_whole_benchmark_needs_no_caution(tmp_path: Path) -> None:
    plan = plan_of(make_benchmark(num_envs=[1], seeds=[0, 1, 2, 3]))
    write_learning(tmp_path, plan, {(name, 1): [(0, 1)] * 4 for name in ("ppo", "trpo")})
    assert cautions(gather(plan, tmp_path), plan) == []


def test_a_device_left_out_is_said(tmp_path: Path) -> None:
    tables, plan = handmade_tables(tmp_path)
    found = cautions(
        tables, plan.model_copy(update={"left_out": {"cuda": "no NVIDIA driver on this machine"}})
    )
    assert (
        "The devices are 'auto', and cuda is left out: no NVIDIA driver on this machine." in found
    )


def test_mixed_code_is_said(tmp_path: Path) -> None:
    _, plan = handmade_tables(tmp_path)
    write_run(tmp_path, plan, Cell("ppo", ENVIRONMENT, 1, "cpu", 0), (0, 1), digest="bbbbbbbbbbbb")
    last = cautions(gather(plan, tmp_path), plan)[-1]
    assert last.endswith("are mixed: aaaaaaaaaaaa (13 runs), bbbbbbbbbbbb (1 runs).")


def test_intervals_as_text() -> None:
    assert (
        interval(Estimate(-150.0, -160.25, -140.0, 5))
        == "\N{MINUS SIGN}150 [\N{MINUS SIGN}160.2, \N{MINUS SIGN}140]"
    )
    assert interval(Estimate(3.0, float("nan"), float("nan"), 1)) == "3"
