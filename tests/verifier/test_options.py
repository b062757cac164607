r"""What is arguable about equality: each option both ways."""

import pytest

from megatron_seirenes.config.schema import VerifierSection
from megatron_seirenes.verifier.decision import decide
from megatron_seirenes.verifier.judge import judge_one
from megatron_seirenes.verifier.options import Options


@pytest.mark.parametrize(
    ("change", "gold", "answer", "usually", "changed"),
    [
        ({"percent": "unit"}, r"50\%", "50", False, True),
        ({"percent": "unit"}, "50", r"50\%", False, True),
        ({"percent": "unit"}, "0.5", r"50\%", True, True),
        ({"percent": "unit"}, "5", r"50\%", False, False),
        ({"units": "required"}, "18 cm", "18", True, False),
        ({"units": "required"}, "18 cm", "180 mm", True, True),
        ({"units": "required"}, "18", "18 cm", True, True),
        ({"unsimplified": "accept"}, "5", "2+3", False, True),
        ({"unsimplified": "accept"}, "5", "2+4", False, False),
        ({"letter_case": "ignore"}, "A", "a", False, True),
        ({"letter_case": "ignore"}, "A", "b", False, False),
        ({"decimal_digits": 3}, "1/3", "0.333", False, True),
        ({"decimal_digits": 3}, "1/3", "0.334", False, False),
        ({"decimal_digits": 12}, "1/3", "0.333333", True, False),
        ({"relative_tolerance": 0.01}, "11.8", "11.85", False, True),
        ({"relative_tolerance": 0.01}, "11.8", "12.5", False, False),
        ({"relative_tolerance": 0.01}, r"\sqrt{2}", "1.41", False, True),
        ({"relative_tolerance": 0.01}, "118", "119", False, False),
    ],
)
def test_an_option_changes_what_it_says_and_nothing_else(change, gold, answer, usually, changed):
    assert (decide(gold, answer, Options()) == "match") == usually
    assert (decide(gold, answer, Options(**change)) == "match") == changed


def test_the_configuration_reaches_the_workers():
    section = VerifierSection.model_validate({"equality": {"unsimplified": "accept"}})
    assert judge_one("5", r"\boxed{2+3}", section).correct
    assert not judge_one("5", r"\boxed{2+3}", VerifierSection()).correct


def test_the_configuration_has_every_option_with_the_same_default():
    assert Options(**VerifierSection().equality.model_dump()) == Options()
