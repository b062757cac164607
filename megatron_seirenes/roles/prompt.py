"""What a role is asked, as versioned data files.

A prompt file is YAML with exactly the keys `version`, `role`, `system`, `user` and `user_with_hint`; the last is the
user's turn when there is a hint. The placeholders are `{question}` and `{hint}`, replaced once and in one pass: braces
of mathematics stay, and a question or hint that itself contains a placeholder is not expanded. There is no placeholder
for the answer, so no role can be shown it. Packaged prompts are named by their file (`reasoner`, `adversary`,
`chains_reasoner`, `chains_adversary`); anything that ends in `.yaml` or `.yml` is a path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from megatron_seirenes.errors import DataError

PACKAGED = Path(__file__).parent / "prompts"

_KEYS = ("version", "role", "system", "user", "user_with_hint")
_PLACEHOLDER = re.compile(r"\{(question|hint)\}")
# A lone {word} is a placeholder that does not exist; \boxed{word} and \frac{a}{b} are mathematics.
_LONE_WORD = re.compile(r"(?<![\w}])\{(\w+)\}")

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt file as read. `name` is what it was asked for by."""

    name: str
    version: int
    role: str
    system: str | None
    user: str
    user_with_hint: str | None

    def messages(self, question: str, context: Mapping[str, str]) -> list[Message]:
        """The conversation that asks the role about `question`.

        `context` may hold `hint`. Raises DataError for a hint that this prompt has no turn for, and for other keys.
        """
        unknown = sorted(set(context) - {"hint"})
        if unknown:
            raise DataError(f"prompt {self.name}: no placeholder for {', '.join(unknown)}; it can be told: hint")
        template = self.user_with_hint if "hint" in context else self.user
        if template is None:
            raise DataError(f"prompt {self.name}: user_with_hint is null, but the role {self.role} was given a hint")
        values = {"question": question, **context}
        user = _PLACEHOLDER.sub(lambda match: values[match[1]], template)
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, {"role": "user", "content": user}]


def load_prompt(name_or_path: str) -> Prompt:
    """The packaged prompt of this name, or the prompt file at this path. Raises DataError naming file and key."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = PACKAGED / f"{name_or_path}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(file.stem for file in PACKAGED.glob("*.yaml")))
            raise DataError(f"unknown prompt {name_or_path!r}; packaged: {known}; or the path of a .yaml file")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such prompt file") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{path}: cannot be read as YAML: {error}") from None
    faults = _faults(content)
    if faults:
        raise DataError("\n".join(f"{path}: {fault}" for fault in faults))
    return Prompt(name_or_path, **content)


def _faults(content: Any) -> list[str]:
    if not isinstance(content, dict):
        return [f"a mapping with the keys {', '.join(_KEYS)} expected"]
    faults = [f"unknown key {key!r}; allowed: {', '.join(_KEYS)}" for key in content if key not in _KEYS]
    faults += [f"key {key!r} is missing" for key in _KEYS if key not in content]
    if faults:
        return faults
    if type(content["version"]) is not int or content["version"] < 1:
        faults.append(f"version: {content['version']!r}; a whole number from 1 expected")
    if not isinstance(content["role"], str) or not content["role"]:
        faults.append(f"role: {content['role']!r}; the name of a role expected")
    faults += _template_faults("system", content["system"], needed=set(), optional=True)
    faults += _template_faults("user", content["user"], needed={"question"}, optional=False)
    faults += _template_faults("user_with_hint", content["user_with_hint"], needed={"question", "hint"}, optional=True)
    return faults


def _template_faults(key: str, text: Any, needed: set[str], optional: bool) -> list[str]:
    if text is None and optional:
        return []
    if not isinstance(text, str) or not text.strip():
        return [f"{key}: {text!r}; text expected"]
    seen = set(_PLACEHOLDER.findall(text)) | set(_LONE_WORD.findall(text))
    allowed = ", ".join(f"{{{name}}}" for name in sorted(needed)) or "none"
    missing = [f"{key}: placeholder {{{name}}} is missing" for name in sorted(needed - seen)]
    return missing + [
        f"{key}: placeholder {{{name}}} cannot be used here; allowed: {allowed}" for name in sorted(seen - needed)
    ]
