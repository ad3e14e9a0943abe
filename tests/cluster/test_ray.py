"""Runs over shards on Ray: clusters of several nodes on this machine, on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import p3s
from p3s.errors import TrainingStopped, UserError
from p3s.runs.records import read_rows
from p3s.runs.replays import export_replay
from tests.helpers import SMALL, Counter, processes_below, record

pytest.importorskip("ray")
from ray.cluster_utils import Cluster

from p3s.cluster.ray_library import connect

RUN = [
    "--preset", "paper", "--hidden-sizes", "32", "32", "--batch-size", "16",
    "--initial-steps", "50",
    "--review-period", "50", "--buffer-size", "5000", "--evaluation-period", "1000",
    "--evaluation-episodes", "2", "--metrics-period", "500", "--checkpoint-period", "500",
    "--no-report", "--shards", "2",
]  # fmt: skip


@pytest.fixture
def cluster(turn_on_ray):
    """A head and two nodes with one CPU each; the head has none."""
    made = Cluster()
    try:
        made.add_node(wait=False, num_cpus=0, include_dashboard=False)
        made.nodes = [made.add_node(wait=False, num_cpus=1) for _ in range(2)]
        made.wait_for_nodes(timeout=120)
        yield made
    finally:
        made.shutdown()


def train(path: Path, *more: str, env: str = "InvertedPendulum-v5", steps: int = 3000):
    """`p3s train` in a process of its own."""
    words = [sys.executable, "-m", "p3s", "train", env, *RUN, "--steps", str(steps)]
    return subprocess.Popen(
        [*words, "--out", str(path), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def finished(process: subprocess.Popen, code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err
    return out, err


def wait_for_step(path: Path, step: int, process: subprocess.Popen) -> None:
    """Wait until a run has a checkpoint at this step or later."""
    while process.poll() is None:
        steps = [int(each.name[5:]) for each in (path / "checkpoints").glob("step-*")]
        if max(steps, default=0) >= step:
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate()[1])


@pytest.mark.slow
@pytest.mark.usefixtures("turn_on_ray")
@pytest.mark.parametrize("more", [(), ("--delay", "20", "--credit", "rrd")], ids=["", "credit"])
def test_ray_on_this_machine_is_the_local_engine_to_the_bit(more, tmp_path):
    finished(train(tmp_path / "local", *more, steps=1000))
    finished(train(tmp_path / "ray", "--engine", "ray", *more, steps=1000))
    assert record(tmp_path / "ray") == record(tmp_path / "local")
    assert len(read_rows(tmp_path / "ray" / "metrics.jsonl")[-1]["shards"]) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("turn_on_ray")
def test_every_shard_has_the_data_and_its_learners_start_from_the_clone(tmp_path):
    finished(train(tmp_path / "first", steps=500))
    export_replay(tmp_path / "first", tmp_path / "data.npz")
    more = ("--data", str(tmp_path / "data.npz"), "--data-share", "0.5", "--cloning-updates", "20")
    finished(train(tmp_path / "local", *more, steps=1000))
    finished(train(tmp_path / "ray", "--engine", "ray", *more, steps=1000))
    assert record(tmp_path / "ray") == record(tmp_path / "local")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["p3s", "sharing", "resetting", "pbt"])
def test_two_nodes_are_the_local_engine_to_the_bit(scheme, cluster, tmp_path):
    finished(train(tmp_path / "local", "--scheme", scheme))
    words = ("--scheme", scheme, "--engine", "ray", "--address", cluster.address)
    finished(train(tmp_path / "ray", *words))
    assert record(tmp_path / "ray") == record(tmp_path / "local")


@pytest.mark.slow
class TestLosses:
    """A run that loses a part ends as if nothing had happened."""

    words = ("--scheme", "pbt", "--perturbed", "learning_rate")

    @pytest.fixture(scope="class")
    def undisturbed(self, tmp_path_factory):
        path = tmp_path_factory.mktemp("undisturbed") / "run"
        finished(train(path, *self.words, steps=6000))
        return record(path)

    def test_a_node_is_removed(self, undisturbed, cluster, tmp_path):
        cluster.add_node(num_cpus=1)  # one more, which takes over
        ours = ("--engine", "ray", "--address", cluster.address)
        process = train(tmp_path / "run", *self.words, *ours, steps=6000)
        wait_for_step(tmp_path / "run", 2000, process)
        cluster.remove_node(cluster.nodes[0], allow_graceful=False)
        out, err = finished(process)
        if "a shard is lost" not in err:  # the node had none
            pytest.skip("the node that was removed had no shard")
        assert "raylet" not in out + err
        assert err.count("\n") == 2  # that it is lost, and where the run goes on
        assert re.search(r"continuing from step \d,\d00", err)
        assert record(tmp_path / "run") == undisturbed

    def test_a_shard_is_killed(self, undisturbed, cluster, tmp_path):
        ours = ("--engine", "ray", "--address", cluster.address)
        process = train(tmp_path / "run", *self.words, *ours, steps=6000)
        wait_for_step(tmp_path / "run", 2000, process)
        # The nodes are processes of this one.
        os.kill(processes_below(os.getpid(), "ray::ShardActor")[0], signal.SIGKILL)
        out, err = finished(process)
        assert "a shard is lost" in err
        assert "raylet" not in out + err
        assert record(tmp_path / "run") == undisturbed

    def test_the_driver_is_killed_and_resumed(self, undisturbed, cluster, tmp_path):
        ours = ("--engine", "ray", "--address", cluster.address)
        process = train(tmp_path / "run", *self.words, *ours, steps=6000)
        wait_for_step(tmp_path / "run", 2000, process)
        process.kill()
        process.communicate()
        command = [sys.executable, "-m", "p3s", "resume", str(tmp_path / "run"), "--no-report"]
        resumed = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert resumed.returncode == 0, resumed.stderr
        assert record(tmp_path / "run") == undisturbed


@pytest.mark.slow
def test_more_than_the_cluster_has(cluster, tmp_path):
    started = time.monotonic()
    ours = ("--engine", "ray", "--address", cluster.address, "--shard-cpus", "3")
    _, err = finished(train(tmp_path / "run", *ours, "--cluster-wait", "20"), code=2)
    assert "no room for 2 shards of 3 CPUs each after 20 s: the cluster has 2 CPUs (2 free)" in err
    assert time.monotonic() - started < 90
    assert not (tmp_path / "run").exists()


def test_no_cluster_at_this_address(tmp_path):
    _, err = finished(
        train(tmp_path / "run", "--engine", "ray", "--address", "127.0.0.1:1"), code=2
    )
    assert "there is no Ray cluster at 127.0.0.1:1" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("address", ["x", "127.0.0.1", "ray://127.0.0.1:1", ":1", "[:1", "h:1\n"])
def test_an_address_that_is_none_is_refused_before_ray_tries_it_for_minutes(address):
    with pytest.raises(UserError, match="the address of a Ray cluster is HOST:PORT or auto"):
        connect(address)


@pytest.mark.slow
@pytest.mark.usefixtures("turn_on_ray")
def test_what_an_environment_of_a_script_raises():
    """The first learner's error is told, as on one machine, though that of another comes sooner."""

    class Fails(Counter):
        def step(self, action):
            # The first shard has two learners, so that it is slower.
            if len(self.actions) >= 40:
                time.sleep(0.2)
            if len(self.actions) == 45:
                raise ValueError("out of order")
            return super().step(action)

    fields = {**SMALL, "num_learners": 3, "shards": 2, "exchange_period": 20, "engine": "ray"}
    population = p3s.Population(lambda: Fails(), **fields)
    try:
        with pytest.raises(TrainingStopped, match=r"learner 0 raised at a step.*out of order"):
            population.learn(400, progress_bar=False)
    finally:
        population.training.close()
