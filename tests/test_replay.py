"""Finished runs played again: in another process, from other seeds, on film."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from PIL import Image

from jobs import job, trained
from rlbench.errors import InputError, RunFailed
from rlbench.records import EvaluationRow, read_rows
from rlbench.spec.grid import Devices
from rlbench.training import film
from rlbench.training.evaluate import Outcome
from rlbench.training.film import Episode, film_episode
from rlbench.training.replay import Replay, evaluate_run, evaluation_seeds, replay

NORMALISED = {"observation_norm": "running", "reward_norm": "returns"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that normalises; its best policy is not its last."""
    folder = tmp_path_factory.mktemp("run")
    trained(job("ppo", NORMALISED, total_steps=1000, seed=2), folder)
    return folder


def recorded(folder: Path) -> dict[int, list[Outcome]]:
    """The evaluations of a run by the training steps before them."""
    found: dict[int, list[Outcome]] = {}
    for row in read_rows(EvaluationRow, folder).to_dict("records"):
        outcome = Outcome(row["episode_return"], row["length"])
        found.setdefault(row["env_steps"], []).append(outcome)
    return found


def mean(outcomes: list[Outcome]) -> float:
    return float(np.mean([outcome.episode_return for outcome in outcomes]))


def test_the_last_policy_plays_the_last_evaluation(run: Path) -> None:
    assert evaluate_run(run) == recorded(run)[1000]


def test_the_best_policy_plays_the_best_evaluation(run: Path) -> None:
    """Which one is best is read from the rows."""
    evaluations = recorded(run)
    best = max(evaluations, key=lambda steps: mean(evaluations[steps]))
    assert best != 1000
    assert torch.load(run / "best_policy.pt", weights_only=True)["env_steps"] == best
    assert evaluate_run(run, "best") == evaluations[best]


def test_of_equal_evaluations_the_earliest_is_the_best(tmp_path: Path) -> None:
    """Each episode of Fixed3 returns 3, whatever the policy does."""
    trained(job(environment="probes:Fixed3-v0"), tmp_path)
    assert torch.load(tmp_path / "best_policy.pt", weights_only=True)["env_steps"] == 0
    assert torch.load(tmp_path / "policy.pt", weights_only=True)["env_steps"] == 600


def test_a_new_process_plays_exactly_the_same(run: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from rlbench.training.replay import evaluate_run; "
        "print([(o.episode_return, o.length) for o in evaluate_run(Path(sys.argv[1]), 'best')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, run], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    )  # fmt: skip
    here = evaluate_run(run, "best")
    assert done.stdout.strip() == str([(o.episode_return, o.length) for o in here])


def test_seeds_decide_the_episodes(run: Path) -> None:
    own = evaluation_seeds(job(seed=2), 2)
    assert evaluation_seeds(job(seed=2), 5)[:2] == own
    there, back = evaluate_run(run, seeds=own), evaluate_run(run, seeds=own[::-1])
    assert there == evaluate_run(run)
    for one, other in zip(there, back[::-1], strict=True):
        assert one.episode_return == pytest.approx(other.episode_return, rel=1e-4)
    assert evaluate_run(run, seeds=[1, 2]) != there


def test_a_run_is_compared_with_what_it_recorded(run: Path, tmp_path: Path) -> None:
    same, more = replay(run, "last"), replay(run, "last", episodes=3)
    assert (same.compared, same.difference) == (True, "")
    assert (more.compared, len(more.outcomes)) == (False, 3)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in run.glob("*.*"):
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "policy.pt").write_bytes((run / "best_policy.pt").read_bytes())
    assert replay(copy, "last").difference == ""  # the file says from which step it is
    facts = json.loads((run / "run.json").read_text())
    facts["job"]["seed"] = 1
    cpu_model = facts["machine"]["cpu_model"]
    facts["machine"]["cpu_model"] = "another"
    (copy / "run.json").write_text(json.dumps(facts))
    difference = replay(copy, "last").difference
    assert "2 of 2 differ" in difference
    assert difference.endswith(
        f"Changed since the run: machine.cpu_model: another then, {cpu_model} now"
    )


def test_on_another_device_nothing_is_compared(run: Path, tmp_path: Path) -> None:
    """A run from a GPU, on a machine that has none."""
    for path in run.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    facts = json.loads((run / "run.json").read_text())
    facts["job"]["device"] = "cuda"
    (tmp_path / "run.json").write_text(json.dumps(facts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlbench.training.replay.devices_here", lambda: Devices(present=("cpu",)))
        done = replay(tmp_path, "last")
    assert (done.device, done.compared, done.outcomes) == ("cpu", False, recorded(run)[1000])


def test_what_cannot_be_played_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder; must be that of a run"):
        evaluate_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"run.json: not there; a finished run has it"):
        evaluate_run(tmp_path)
    with pytest.raises(InputError, match="--episodes: got 0; must be at least 1"):
        replay(run, "last", episodes=0)
    facts = json.loads((run / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match=r"best_policy.pt: not there"):
        evaluate_run(tmp_path, "best")
    (tmp_path / "policy.pt").write_bytes(b"no policy")
    with pytest.raises(InputError, match=r"policy.pt: not a policy that PyTorch has saved"):
        evaluate_run(tmp_path)
    (tmp_path / "policy.pt").write_bytes((run / "policy.pt").read_bytes())
    facts["job"]["algorithm"]["hidden_sizes"] = [8]
    (tmp_path / "run.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match=r"policy.pt: for other networks than the job's"):
        evaluate_run(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(facts | {"kind": "throughput"}))
    with pytest.raises(InputError, match="a throughput run, which keeps no policy"):
        evaluate_run(tmp_path)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of an environment that draws its steps."""
    folder = tmp_path_factory.mktemp("drawn")
    trained(job(environment="probes:Drawn-v0", total_steps=200), folder)
    return folder


def test_a_film_shows_every_state_at_the_environments_own_rate(drawn: Path) -> None:
    """Brightness 0, 50, 100, 150; ten frames a second."""
    path = drawn / "films" / "first.gif"
    assert isinstance(replay(drawn, "last", film=path), Replay)
    with Image.open(path) as gif:
        assert (gif.size, getattr(gif, "n_frames", 0), gif.info["duration"]) == ((24, 16), 4, 100)
        shown = []
        for frame in range(4):
            gif.seek(frame)
            shown.append(np.asarray(gif.convert("RGB")).mean())
    assert shown == pytest.approx([0, 50, 100, 150], abs=3)
    assert [file.name for file in path.parent.iterdir()] == ["first.gif"]


def test_a_film_is_of_the_first_episode_played(run: Path, tmp_path: Path) -> None:
    """Gymnasium's own pendulum, from the same start and actions, returns what was recorded."""
    seen: list[Episode] = []

    def keep(episode: Episode, path: Path) -> Path:
        seen.append(episode)
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlbench.training.replay.film_episode", keep)
        replay(run, "last", film=tmp_path / "a.gif")
    env = gym.make("Pendulum-v1")
    env.reset(seed=seen[0].seed)
    total = sum(float(env.step(action)[1]) for action in seen[0].actions)
    env.close()
    assert total == pytest.approx(recorded(run)[1000][0].episode_return, rel=1e-9)
    assert len(seen[0].actions) == 200


def test_a_film_of_another_episode_is_not_written(tmp_path: Path) -> None:
    action = np.zeros(1, np.float32)
    with pytest.raises(RunFailed, match=r"does not repeat an episode: return 1.0 while filmed"):
        film_episode(Episode("probes:Drawn-v0", 1, [action], 2.0), tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_an_environment_that_fails_to_draw_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise OSError("no display")

    monkeypatch.setattr("probes.Drawn.render", broken)
    with pytest.raises(RunFailed, match="could not draw itself: OSError: no display"):
        film_episode(Episode("probes:Drawn-v0", 1, [], 0.0), tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_a_film_that_cannot_be_made_is_refused_before_anything_is_played(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"got a.avi; must end in .mp4 or .gif"):
        replay(drawn, "last", film=Path("a.avi"))
    with pytest.raises(InputError, match=r"draws itself in modes none; must have rgb_array"):
        film.require_film(Path("a.gif"), "probes:Fixed3-v0")
    monkeypatch.setattr(film, "find_spec", lambda name: find_spec(name) if name == "PIL" else None)
    with pytest.raises(InputError, match=r'needs imageio, not.*pip install "rlbench\[render\]"'):
        replay(drawn, "last", film=tmp_path / "a.gif")
    with pytest.raises(InputError, match=r"\.mp4 needs imageio and imageio_ffmpeg, not installed"):
        replay(drawn, "last", film=tmp_path / "a.MP4")
    assert not list(tmp_path.iterdir())
