"""Differences of two groups of reference runs."""

from pathlib import Path

import pytest

import paired


def test_differences_are_paired_by_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds in another order, one seed missing: 12 - 10, 15 - 11, 11 - 11; mean 2, t = 4.303.

    Deviation 2, standard error 1.155: half an interval is 4.97.
    """
    head = "algorithm,environment,num_envs,device,seed,status,regret\n"
    place = "ppo,Pendulum-v1,8,cpu"
    rows = {"one": {0: 12, 1: 15, 2: 11, 3: 9}, "other": {2: 11, 1: 11, 0: 10}}
    for name, regrets in rows.items():
        lines = [f"{place},{seed},ok,{regret}\n" for seed, regret in regrets.items()]
        (tmp_path / f"{name}.csv").write_text(head + "".join(lines))
    monkeypatch.setattr(paired, "TABLES", tmp_path)
    assert sorted(paired.differences("one", "other", "regret")["difference"]) == [0, 2, 4]
    monkeypatch.setattr("sys.argv", ["paired.py", "one", "other"])
    paired.main()
    assert "+2.00 [-2.97, +6.97], n = 3" in capsys.readouterr().out
