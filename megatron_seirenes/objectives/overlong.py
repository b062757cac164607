"""The reward of being too long: DAPO's soft punishment (arXiv:2503.14476, Eq. 13), on plain numbers.

The last `cache` tokens before the limit are a slope: the penalty is 0 up to limit - cache tokens, grows linearly, and
is the full `penalty` at the limit, which a truncated response has reached. DAPO's rewards are -1 and 1 with a penalty
of 1; ours are 0 and 1, so half of it is the same pressure.
"""

from __future__ import annotations


def overlong_penalty(tokens: int, *, limit: int, cache: int, penalty: float) -> float:
    """What is taken off the reward of a response of `tokens` tokens, in [0, penalty].

    Raises ValueError unless 1 <= cache <= limit.
    """
    if not 1 <= cache <= limit:
        raise ValueError(f"an overlong slope of {cache} tokens under a limit of {limit}: 1 to {limit} is allowed")
    return penalty * min(max((tokens - (limit - cache)) / cache, 0.0), 1.0)
