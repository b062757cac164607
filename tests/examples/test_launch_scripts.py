"""The launch scripts: clean, complete, and rehearsed with stand-ins for srun and scontrol."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from megatron_seirenes.config.loading import load_config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
HERE = Path(__file__).resolve().parent
MODELS = ("qwen2.5_7b", "qwen3_4b", "qwen3_30b_a3b")
FOLDERS = [f"{model}{kind}" for model in MODELS for kind in ("", "_dapo")]
SCRIPTS = sorted([*EXAMPLES.glob("*/*.sh"), *EXAMPLES.glob("*/*.sbatch")])


def dry_run(script: Path, *words: str, **environment: str) -> list[list[str]]:
    """The printed commands, each as its words."""
    done = subprocess.run(
        ["bash", script, "--dry-run", *words],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return [shlex.split(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    done = subprocess.run(["shellcheck", "-x", *SCRIPTS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_model_has_both_scripts_and_its_command_is_a_valid_run(folder: str) -> None:
    slurm = dry_run(EXAMPLES / folder / "slurm.sbatch", "run.seed=3")[-1]
    torchrun = dry_run(EXAMPLES / folder / "torchrun.sh", "run.seed=3", NODE_RANK="0", MASTER_ADDR="a")[-1]
    for words in (slurm, torchrun):
        file, *overrides = words[words.index("train") + 1 :]
        config = load_config(ROOT / file, overrides)
        assert config.run.name == folder and config.run.dir == f"runs/{folder}" and config.run.seed == 3
        assert config.game.name == ("grpo" if folder.endswith("_dapo") else "seirenes")
    nodes = 2 if "30b" in folder else 1
    assert slurm[slurm.index("--ntasks") + 1] == str(8 * nodes)
    assert ("--standalone" in torchrun) == (nodes == 1)


def test_baselines_differ_from_their_models_in_the_game_only() -> None:
    for model in MODELS:
        ours, theirs = ((EXAMPLES / f"{model}{kind}" / "slurm.sbatch").read_text() for kind in ("", "_dapo"))
        sbatch = [line for line in ours.splitlines() if line.startswith("#SBATCH")]
        assert [line.replace("_dapo", "") for line in theirs.splitlines() if line.startswith("#SBATCH")] == sbatch


def test_slurm_is_told_to_warn_and_to_requeue() -> None:
    for folder in FOLDERS:
        text = (EXAMPLES / folder / "slurm.sbatch").read_text()
        assert "#SBATCH --requeue" in text and "#SBATCH --signal=B:USR1@600" in text


def test_the_environment_is_set_and_may_be_overridden() -> None:
    def exported(**environment: str) -> dict[str, str]:
        commands = dry_run(EXAMPLES / "qwen3_4b" / "torchrun.sh", **environment)
        return dict(words[1].split("=", 1) for words in commands if words[0] == "export")

    assert exported()["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert exported(OMP_NUM_THREADS="3")["OMP_NUM_THREADS"] == "3"


def test_containers_are_optional() -> None:
    script = EXAMPLES / "qwen3_4b" / "slurm.sbatch"
    assert not any("container" in word for word in dry_run(script)[-1])
    assert "--container-image" in dry_run(script, CONTAINER="/images/ours.sqsh")[-1]
    words = dry_run(script, CONTAINER="ours.sif", PYTHON="python")[-1]
    assert words[words.index("apptainer") : words.index("apptainer") + 3] == ["apptainer", "exec", "--nv"]
    assert words[words.index("ours.sif") + 1] == "python"


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (["--dryrun"], {}, "neither --dry-run nor section.key=value"),
        ([], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "expandable_segments cannot be used"),
        ([], {"NODES": "2"}, "MASTER_ADDR: the name of the first node is needed"),
    ],
)
def test_wrong_calls_are_refused(words: list[str], environment: dict[str, str], message: str) -> None:
    done = subprocess.run(
        ["bash", EXAMPLES / "qwen3_4b" / "torchrun.sh", *words],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and message in done.stderr


class Cluster:
    """A SLURM of stand-ins, and one job of it that may start several times."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.run_dir = folder / "run"
        programs = folder / "programs"
        programs.mkdir()
        for name in ("srun", "scontrol"):
            shutil.copy(HERE / f"stand_in_{name}.sh", programs / name)
            (programs / name).chmod(0o755)
        python = programs / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "stand_in_training.py"}" "$@"\n')
        python.chmod(0o755)
        self.starts = 0
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "RECORD": str(folder),
            "PYTHON": str(python),
            "RUN_DIR": str(self.run_dir),
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "node-[a-b]",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_SUBMIT_DIR": str(ROOT),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = self.environment | {"SLURM_RESTART_COUNT": str(self.starts)}
        self.starts += 1
        for file in self.run_dir.glob("ready-*"):
            file.unlink()
        return subprocess.Popen(
            ["bash", EXAMPLES / "qwen3_4b" / "slurm.sbatch", *words],
            cwd=self.folder,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 300
        while len(list(self.run_dir.glob("ready-*"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def trace(self) -> list[str]:
        return sorted((self.run_dir / "trace").read_text().splitlines())

    def requeued(self) -> list[str]:
        path = self.folder / "requeue"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_a_warned_job_saves_is_queued_again_and_goes_on(cluster: Cluster) -> None:
    job = cluster.start()
    cluster.wait_until_ready()
    (cluster.run_dir / "release-0").touch()
    (cluster.run_dir / "release-1").touch()
    time.sleep(0.3)
    job.send_signal(signal.SIGUSR1)
    _, said = job.communicate(timeout=300)
    assert job.returncode == 0, said
    assert cluster.requeued() == ["4711"]
    assert cluster.trace() == [
        f"{rank} of 2 at node-a: {what}" for rank in (0, 1) for what in ("saved 2", "starts at 0")
    ]

    again = cluster.start()
    cluster.wait_until_ready()
    assert not (cluster.run_dir / "STOPPED").exists(), "the old marker says nothing about this start"
    for step in (2, 3):
        (cluster.run_dir / f"release-{step}").touch()
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert "done" in said and cluster.requeued() == ["4711"], "a finished run is not queued again"
    assert {"0 of 2 at node-a: starts at 2", "1 of 2 at node-a: ends at 4"} <= set(cluster.trace())
    outputs = [line.split("--output ")[1].split()[0] for line in (cluster.folder / "srun").read_text().splitlines()]
    assert [Path(path).name for path in outputs] == [f"slurm-4711-start-{n}-node-%n.log" for n in (0, 1)]


def test_a_stop_by_hand_is_not_queued_again(cluster: Cluster) -> None:
    job = cluster.start()
    cluster.wait_until_ready()
    step = int(subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(job.pid)], text=True).split()[0])
    os.kill(step, signal.SIGUSR1)
    _, said = job.communicate(timeout=300)
    assert job.returncode == 75 and "stopped by hand" in said and cluster.requeued() == []


def test_a_failure_is_not_queued_again(cluster: Cluster) -> None:
    job = cluster.start("fails=1")
    (cluster.run_dir).mkdir(exist_ok=True)
    for step in range(4):
        (cluster.run_dir / f"release-{step}").touch()
    _, said = job.communicate(timeout=300)
    assert job.returncode == 1 and "failed with exit code 1" in said and cluster.requeued() == []


def test_restarts_have_a_limit(cluster: Cluster) -> None:
    cluster.environment["MAX_RESTARTS"] = "0"
    job = cluster.start()
    cluster.wait_until_ready()
    job.send_signal(signal.SIGUSR1)
    _, said = job.communicate(timeout=300)
    assert job.returncode == 75 and "MAX_RESTARTS" in said and cluster.requeued() == []


class Node:
    """torchrun.sh on one node, with stand-ins for torchrun and the training."""

    def __init__(self, folder: Path):
        self.run_dir = folder / "run"
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "stand_in_torchrun.py"}" "$@"\n')
        python.chmod(0o755)
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "PYTHON": str(python),
            "RUN_DIR": str(self.run_dir),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", EXAMPLES / "qwen3_4b" / "torchrun.sh", *words],
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while len(list(self.run_dir.glob("ready-*"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_under_torchrun_a_saved_stop_ends_with_75_and_the_next_start_goes_on(tmp_path: Path, number: int) -> None:
    node = Node(tmp_path)
    job = node.start()
    node.wait_until_ready()
    job.send_signal(number)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 75 and "stopped with everything saved" in said, said

    for step in range(4):
        (node.run_dir / f"release-{step}").touch()
    again = node.start()
    _, said = again.communicate(timeout=60)
    assert again.returncode == 0, "the marker of the first stop says nothing about this start"
    assert not (node.run_dir / "STOPPED").exists()


def test_the_marker_is_looked_for_where_the_command_puts_the_run(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run_dir = tmp_path / "elsewhere"
    job = node.start(f"run.dir={node.run_dir}")
    node.wait_until_ready()
    job.send_signal(signal.SIGTERM)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 75 and "stopped with everything saved" in said, said
    assert (node.run_dir / "STOPPED").exists() and not (tmp_path / "run").exists()


def test_under_torchrun_a_failure_keeps_its_code(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.run_dir.mkdir()
    for step in range(4):
        (node.run_dir / f"release-{step}").touch()
    job = node.start("fails=0")
    job.communicate(timeout=60)
    assert job.returncode == 1
