"""The command line: what it prints, and what bad input gets."""

from __future__ import annotations

import sys

import pytest

from p3s.cli import main
from p3s.cli.advice import nothing_learned
from p3s.cli.train import parse_train
from p3s.report.sparkline import sparkline
from p3s.runs import opening
from p3s.schemes import P3S
from tests.helpers import call, small_config
from tests.synthetic_runs import write_run


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["train", "Pendulum-v1", "--preset", "paper", "--steps", "900", "--out", path,
                 "--hidden-sizes", "16", "--initial-steps", "20", "--review-period", "25",
                 "--evaluation-period", "300", "--evaluation-episodes", "2",
                 "--buffer-size", "2000"]  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    assert ended.value.code == 0
    return path


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("train Hoper-v5", "unknown environment 'Hoper-v5': did you mean Hopper-v5"),
            ("train Hopper-v5 --scheme p4s", "unknown scheme 'p4s': did you mean p3s?"),
            ("train Hopper-v5 --algorithm ppp", "unknown algorithm 'ppp'"),
            ("train Hopper-v5 --preset papr", "unknown preset 'papr': did you mean paper?"),
            (
                "train CartPole-v1 --algorithm td3",
                "CartPole-v1 has discrete actions, which td3 cannot learn",
            ),
            ("train Hopper-v5 --num-learners 0", "num_learners must be at least 1, not 0"),
            ("train Hopper-v5 --steps 0", "steps must be at least 1, not 0"),
            (
                "train Hopper-v5 --distance action",
                "distance is a field of sac, sac_2018, redq, droq, tqc, crossq, xqc, flashsac, "
                "not of scheme p3s with td3",
            ),
            ("train Hopper-v5 --own-share 1.5", "own_share must be between 0 and 1, not 1.5"),
            (
                "train Hopper-v5 --scheme cem --own-share 0.5",
                "not of scheme cem with td3",
            ),
            (
                "train Hopper-v5 --scheme single --own-share 0.5",
                "own_share is for several learners that share a replay",
            ),
            (
                "train Hopper-v5 --delay 0",
                "delay must be a whole number of at least 1 or 'end', not 0",
            ),
            ("train Hopper-v5 --batch-size 0", "batch_size must be at least 1"),
            ("train Hopper-v5 --scheme single --num-learners 4", "scheme single has one learner"),
            ("train Hopper-v5 --buffer-size 99999999999999", "would fit"),
            ("resume nowhere", "nowhere is not a run"),
            ("resume nowhere --steps 0", "steps must be at least 1"),
            ("evaluate nowhere", "there is no policy file nowhere"),
            ("export nowhere out.onnx", "there is no policy file nowhere"),
            ("watch nowhere", "nowhere is not a run"),
            ("watch nowhere --refresh 0", "refresh must be above 0 seconds"),
            ("train --steps 900 Pendulum-v1", "give the environment first: p3s train ENV"),
            ("train Hopper-v5 --env-kwargs colour red", "unexpected keyword argument 'colour'"),
            ("train Hopper-v5 --rho nan", "rho must be a finite number, not nan"),
            ("train Hopper-v5 --target-noise -1", "target_noise must be at least 0, not -1.0"),
            ("train Hopper-v5 --exploration-noise -1", "exploration_noise must be at least 0"),
            ("train Hopper-v5 --beta inf", "beta must be a finite number, not inf"),
            (
                "--import broken_module_of_mine train Hopper-v5",
                "cannot be imported: ModuleNotFound",
            ),
            ("train", "give the environment first: p3s train ENV"),
            ("train Hopper-v5 --discount 0.9", "--discount is now --discount-factor"),
            ("train Hopper-v5 --log csv", "--log is now --loggers"),
            ("train Hopper-v5 --log-period 100", "--log-period is now --metrics-period"),
            ("train Hopper-v5 --record-video=100", "--record-video is now --video-period"),
            ("train Hopper-v5 --num-values 5", "--num-values is now --num-critics"),
            (
                "train Hopper-v5 --no-normalise-observations",
                "--no-normalise-observations is now --no-normalize-observations",
            ),
            ("train Pendulum-v1 --algorithm ppo", "choose --scheme rollout"),
            (
                "train Pendulum-v1 --scheme rollout --algorithm td3",
                "rollout is for on-policy algorithms",
            ),
            ("train Pendulum-v1 --out /dev/null/run", "cannot make /dev/null: "),
            ("train Pendulum-v1 --scheme pbt --num-learners 1", "needs at least 2 learners, not 1"),
            (
                "train Pendulum-v1 --scheme mf_pbt --num-learners 12",
                "scheme mf_pbt cuts each of its 2 groups into quarters: num_learners must be a "
                "multiple of 8, not 12",
            ),
            (
                "train Pendulum-v1 --scheme cem --num-learners 1",
                "needs at least 2 learners, not 1",
            ),
            ("train Pendulum-v1 --scheme cem --num-elites 11", "at most the population, 10"),
            ("train CartPole-v1 --scheme cem", "dqn has no policy of its own"),
            ("train CartPole-v1 --scheme erl --algorithm dqn", "dqn has no policy of its own"),
            (
                "train Pendulum-v1 --scheme re --review-period 500 --steps 900",
                "would never review it",
            ),
            ("envs nothing-like-this", "no environment here"),
            ("trian Hopper-v5", "unknown command 'trian': did you mean train?"),
        ],
    )
    def test_one_line_and_exit_code_2(self, capsys, tmp_path, monkeypatch, arguments, message):
        monkeypatch.chdir(tmp_path)
        code, _, errors = call(capsys, *arguments.split())
        assert code == 2
        assert message in errors
        assert errors.count("\n") == 1
        assert not list(tmp_path.iterdir())

    def test_wrong_type_and_unknown_option(self, capsys):
        for arguments in (["--steps", "many"], ["--stepz", "3"]):
            code, _, errors = call(capsys, "train", "Hopper-v5", *arguments)
            assert code == 2
            assert "step" in errors

    def test_existing_run(self, capsys, run_folder):
        code, _, errors = call(capsys, "train", "Pendulum-v1", "--out", run_folder)
        assert code == 2
        assert f"p3s resume {run_folder}" in errors


class TestCompare:
    def test_table_and_curves(self, capsys, run_folder, tmp_path):
        picture = tmp_path / "curves.svg"
        code, output, _ = call(
            capsys, "compare", run_folder, run_folder, "--out", picture, "--terminal"
        )
        assert code == 0
        assert "at 900 environment steps on Pendulum-v1" in output
        assert output.count("p3s-td3") >= 4
        assert "<svg" in picture.read_text()

    def test_runs_of_a_sweep_can_be_told_apart(self, capsys, tmp_path):
        radii, sizes = (0.02, 0.05), (1000, 2000)
        for d_min in radii:
            for size in sizes:
                folder = tmp_path / f"{d_min}-{size}"
                fields = {"d_min": d_min, "buffer_size": size, "evaluations": 3}
                write_run(folder, "P3S-TD3", "Hopper-v1", 0, **fields)
        code, output, _ = call(capsys, "compare", *sorted(tmp_path.iterdir()), "--terminal")
        assert code == 0
        for d_min in radii:
            for size in sizes:
                # In the table, and at its curve.
                label = f"p3s-td3, buffer_size {size}, d_min {d_min}, seed 0"
                assert output.count(label) == 2

    def test_a_sweep_over_many_fields(self, capsys, tmp_path):
        """Runs that differ in the last of five fields have two labels too."""
        first = {"d_min": 0.02, "rho": 2.0, "batch_size": 32, "target_rate": 0.1, "n_step": 1}
        other = {"d_min": 0.03, "rho": 3.0, "batch_size": 64, "target_rate": 0.2, "n_step": 2}
        for index, fields in enumerate((first, {**first, "target_rate": 0.2}, other)):
            folder = tmp_path / f"{index}"
            write_run(folder, "P3S-TD3", "Hopper-v1", 0, evaluations=3, **fields)
        _, output, _ = call(capsys, "compare", *sorted(tmp_path.iterdir()), "--terminal")
        labels = {line.partition("  ")[0] for line in output.splitlines()[-3:]}
        assert len(labels) == 3

    def test_bad_input(self, capsys, run_folder, tmp_path):
        for arguments, message in (
            ([], "give the run folders"),
            ([tmp_path], "is not a run"),
            ([run_folder, "--out", "curves.docx"], "not 'curves.docx'"),
        ):
            code, _, errors = call(capsys, "compare", *arguments)
            assert code == 2
            assert message in errors


class TestCommands:
    def test_overview(self, capsys):
        code, output, _ = call(capsys, "--help")
        assert code == 0
        for command in (
            "train",
            "resume",
            "evaluate",
            "enjoy",
            "watch",
            "export",
            "envs",
            "compare",
            "schemes",
            "algorithms",
            "theory",
        ):
            assert f"\n  {command} " in output

    def test_help_shows_the_environments_own_defaults(self, capsys):
        code, output, _ = call(capsys, "train", "Ant-v5", "--preset", "authors", "--help-all")
        words = " ".join(output.replace("│", " ").split())
        assert code == 0
        assert "(T_initial). (default: 2500)" in words
        assert "Smallest search radius (d_min). (default: 0.02)" in words
        assert "(default: every_minibatch)" in words

    def test_fields_arrive(self):
        config, output = parse_train(
            ["Delayed Ant-v1", "--num-learners", "8", "--rho", "3", "--updates-per-step", "N",
             "--hidden-sizes", "64", "64", "--seed", "5", "--loggers", "tensorboard"]
        )  # fmt: skip
        scheme = config.scheme
        assert isinstance(scheme, P3S)
        assert (scheme.num_learners, scheme.rho, scheme.num_updates) == (8, 3.0, 8)
        assert scheme.algorithm.hidden_sizes == (64, 64)
        assert scheme.initial_steps == 1250
        assert (config.env.id, config.env.delay) == ("Ant-v5", 20)
        assert config.options.seed == 5
        assert output.loggers == ("tensorboard",)

    def test_a_run_too_short_to_learn_says_so(self):
        config, _ = parse_train(["HalfCheetah-v5", "--steps", "2000"])
        assert "begins at environment step 10,000" in nothing_learned(config)
        assert nothing_learned(parse_train(["HalfCheetah-v5"])[0]) is None

    def test_environment_in_a_module_of_the_current_folder(self, tmp_path, monkeypatch):
        (tmp_path / "mine_here.py").write_text(
            "import gymnasium\n"
            "gymnasium.register('Mine-v0', 'gymnasium.envs.classic_control:PendulumEnv')\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", [*sys.path])
        config, _ = parse_train(["mine_here:Mine-v0"])
        assert opening.env_maker(config)().env_spec.observation_size == 3

    def test_arguments_of_the_environment_arrive(self):
        words = ["max_episode_steps", "7", "xml_file", "hopper.xml", "forward_reward_weight", "0.5"]
        words += ["terminate_when_unhealthy", "False"]
        config, _ = parse_train(["Hopper-v5", "--env-kwargs", *words, "--steps", "9"])
        assert config.env.kwargs == {
            "max_episode_steps": 7, "xml_file": "hopper.xml", "forward_reward_weight": 0.5,
            "terminate_when_unhealthy": False,
        }  # fmt: skip
        assert config.options.steps == 9
        env = opening.env_maker(config)()
        env.reset(seed=0)
        ends = [env.step(env.action_space.sample())[3] for _ in range(7)]
        assert ends == [False] * 6 + [True]

    def test_evaluate(self, capsys, run_folder):
        code, output, _ = call(capsys, "evaluate", run_folder, "--episodes", 3)
        assert code == 0
        assert "over 3 episodes" in output
        file = run_folder / "policy-best.safetensors"
        again = call(capsys, "evaluate", file, "--episodes", 3)[1]
        assert again
        assert output.endswith(again)

    def test_training_leaves_a_page(self, run_folder):
        assert "p3s-td3 (paper) on Pendulum-v1, seed 0" in (run_folder / "report.html").read_text()

    def test_resume_of_a_complete_run(self, capsys, run_folder):
        code, output, _ = call(capsys, "resume", run_folder)
        assert code == 0
        assert "complete at 900 steps" in output

    def test_watch(self, capsys, run_folder):
        code, output, _ = call(capsys, "watch", run_folder, "--once")
        assert code == 0
        for word in ("p3s-td3 on Pendulum-v1", "900/900", "score", "spread", "target", "β"):
            assert word in output

    @pytest.mark.parametrize("scheme", ["distributed", "cem", "single"])
    def test_watch_other_schemes(self, capsys, tmp_path, scheme):
        training = opening.begin(small_config(steps=200, scheme=scheme), tmp_path / "run")
        training.run(200)
        training.close()
        code, output, _ = call(capsys, "watch", tmp_path / "run", "--svg", tmp_path / "new/x.svg")
        assert (code, output) == (0, "")
        assert "recent" in (tmp_path / "new/x.svg").read_text()

    def test_export(self, capsys, run_folder, tmp_path):
        code, _, _ = call(capsys, "export", run_folder, tmp_path / "policy.onnx")
        assert code == 0
        assert (tmp_path / "policy.onnx").stat().st_size > 0

    @pytest.mark.parametrize(("command", "words"), [
        ("schemes", ("p3s ", "sharing ", "ESO", "DRL", "Appendix E", "pbt ")),
        ("algorithms", ("td3 ", "continuous")),
    ])  # fmt: skip
    def test_lists(self, capsys, command, words):
        code, output, _ = call(capsys, command)
        assert code == 0
        assert all(word in output for word in words)

    def test_film(self, capsys, run_folder, tmp_path):
        pytest.importorskip("imageio_ffmpeg")
        code, output, _ = call(capsys, "enjoy", run_folder, "--video", tmp_path / "film.gif",
                               "--env", "InvertedPendulum-v5")  # fmt: skip
        assert code == 2
        assert "wrote" not in output
        code, output, _ = call(capsys, "enjoy", run_folder, "--video", "film.txt")
        assert code == 2

    def test_envs(self, capsys):
        code, output, _ = call(capsys, "envs", "hopper")
        assert code == 0
        assert "Hopper-v5" in output
        assert "p3s/DelayedHopper-v5" in output


def test_sparkline():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([3, 3]) == "▁▁"
    assert sparkline([]) == ""
    assert len(sparkline(list(range(500)), width=60)) == 60
