"""Small groups for tests of the streams."""

from __future__ import annotations

from megatron_seirenes.records import Birth, Group, Request, Rollout, Sampling


def make_rollout(name: str, tokens: int = 2, given_ids: tuple[int, ...] | None = None) -> Rollout:
    request = Request(
        id=name,
        problem_id="p",
        stage="R1",
        path=(0,),
        role="reasoner",
        policy="shared",
        prompt_ids=(1, 2, 3),
        sampling=Sampling(max_tokens=9, temperature=0.7, top_p=0.9),
        seed=2**62 + 1,
        parent="p/R0",
        given_ids=given_ids,
    )
    return Rollout(
        request=request,
        response_ids=tuple(range(tokens)),
        behaviour_logprobs=(-0.1,) * tokens,
        finish_reason="stop",
        policy_version=4,
        text="a\nb",
    )


def make_group(name: str, stream: str, birth: Birth, signal: bool = True, **changes) -> Group:
    advantage = 1.0 if signal else 0.0
    fields = {
        "id": name,
        "problem_id": "p",
        "stream": stream,
        "stage": "R1",
        "rollouts": (make_rollout(name),),
        "rewards": (advantage,),
        "advantages": (advantage,),
        "has_signal": signal,
        "birth": birth,
        "old_logprobs": ((-0.1, -0.2),),
    }
    return Group(**fields | changes)
