"""The real engine on a CPU, against Hugging Face in float32: one dense tied model, one mixture of experts."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy
import pytest
import torch
from safetensors.torch import load_file
from scripted import ScriptedJudge, ScriptedRole, three_stages
from tiny_models import engine_config, gloo_world, hf_logprobs, request, saved

from megatron_seirenes.architecture import read_architecture
from megatron_seirenes.device.backend import Backend
from megatron_seirenes.errors import DataError, MissingComponentError
from megatron_seirenes.records import Problem
from megatron_seirenes.rollouts.scheduler import RolloutScheduler

pytest.importorskip("vllm")

STOP = (7, 11)
DRAWN = {"tied": 192, "moe": 160}
LONG = tuple(20 + i % 100 for i in range(200))  # longer than a block of the KV cache, so that its prefix is kept
PROMPTS = [tuple(range(20 + i, 26 + 2 * i)) for i in range(5)] + [LONG]


@pytest.fixture(scope="module", params=["tied", "moe"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folders(kind, tmp_path_factory):
    """Two policies of one shape. The mixture of experts has padded rows whose logits tower over the others."""
    raised = DRAWN[kind] if kind == "moe" else None
    root = tmp_path_factory.mktemp(kind)
    return [saved(kind, seed, root / str(seed), raised) for seed in (0, 1)]


@pytest.fixture(scope="module")
def engine(kind, folders):
    from megatron_seirenes.rollouts.vllm_engine import VLLMEngine

    with gloo_world():
        before = global_state()
        engine = VLLMEngine(
            folders[0],
            engine_config(),
            architecture=read_architecture(folders[0]),
            stop_ids=STOP,
            sampled_vocabulary=DRAWN[kind],
            backend=Backend(torch.device("cpu")),
        )
        assert global_state() == before
        yield engine
        engine.close()
        engine.close()
        assert torch.distributed.is_initialized()


def global_state():
    return (
        random.getstate(),
        numpy.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        torch.set_num_threads.__name__,
    )


@pytest.fixture(autouse=True)
def first_policy(engine, folders):
    """Every test finds an idle engine with the first policy."""
    yield
    engine.abort(list(engine._order))
    if engine.policy_version != 0:
        engine.load_weights(load_file(folders[0] / "model.safetensors").items(), 0)


def drive(engine, requests):
    for one in requests:
        engine.submit(one)
    done = []
    while engine.has_unfinished():
        done.extend(engine.step())
    return {completion.request_id: completion for completion in done}


def batch(temperature=1.0, max_tokens=24):
    return [request(f"r{i}", prompt, max_tokens, 2**62 + i, temperature) for i, prompt in enumerate(PROMPTS)]


def worst_difference(kind, folder, requests, done, temperature=1.0):
    pairs = [(one.prompt_ids, done[one.id].response_ids) for one in requests]
    expected = hf_logprobs(folder, pairs, temperature, DRAWN[kind])
    return max(
        (torch.tensor(done[one.id].logprobs) - reference).abs().max().item()
        for one, reference in zip(requests, expected, strict=True)
    )


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_the_distribution_drawn_from(kind, engine, folders, temperature):
    requests = batch(temperature)
    done = drive(engine, requests)
    assert sum(len(completion.response_ids) for completion in done.values()) > 60
    assert worst_difference(kind, folders[0], requests, done, temperature) <= 1e-4


def test_updated_weights_equal_hugging_face_and_no_prefix_of_the_old_ones_remains(kind, engine, folders):
    before = drive(engine, batch())
    engine.load_weights(load_file(folders[1] / "model.safetensors").items(), 5)
    assert engine.policy_version == 5
    requests = batch()
    done = drive(engine, requests)
    assert worst_difference(kind, folders[1], requests, done) <= 1e-4
    assert worst_difference(kind, folders[0], requests, done) > 0.1
    assert done != before
    engine.load_weights(load_file(folders[0] / "model.safetensors").items(), 6)
    assert drive(engine, batch()) == before


def test_the_same_submissions_give_the_same_tokens_and_another_seed_others(engine):
    first, second = drive(engine, batch()), drive(engine, batch())
    assert first == second
    assert list(first) == list(second)
    other = drive(engine, [replace(one, seed=one.seed + 100) for one in batch()])
    assert all(other[name].response_ids != first[name].response_ids for name in first)


def test_more_prompt_tokens_than_one_step_reads_are_read_in_several(kind, engine, folders):
    """vLLM would cut one of the prompts in two, and fail on a CPU because requests have seeds of their own."""
    requests = [request(f"r{i}", [20 + (i + j) % 100 for j in range(200)], 2, i) for i in range(16)]
    done = drive(engine, requests)
    assert len(done) == 16
    assert worst_difference(kind, folders[0], requests, done) <= 1e-4


def test_padded_ids_are_never_drawn(kind, engine):
    done = drive(engine, [request(f"r{i}", (30 + i, 31), 40, i, temperature=2.0) for i in range(40)])
    drawn = {token for completion in done.values() for token in completion.response_ids}
    assert len(drawn) > 30
    assert max(drawn) < DRAWN[kind]


def test_stop_ids_end_a_response_and_stay_in_it_and_the_limit_truncates(engine):
    done = drive(engine, [request(f"r{i}", (30 + i, 31), 60, i, temperature=2.0) for i in range(40)])
    stopped = [completion for completion in done.values() if completion.finish_reason == "stop"]
    cut = [completion for completion in done.values() if completion.finish_reason == "length"]
    assert len(stopped) > 3
    assert len(cut) > 3
    assert len(stopped) + len(cut) == 40
    assert {completion.response_ids[-1] for completion in stopped} <= set(STOP)
    assert all(not set(STOP) & set(completion.response_ids[:-1]) for completion in stopped)
    assert all(len(completion.response_ids) == 60 for completion in cut)
    assert all(len(completion.logprobs) == len(completion.response_ids) for completion in done.values())


def test_requests_are_served_in_order_and_a_step_is_a_token(engine):
    limits = [3, 1, 2, 3]
    for i, limit in enumerate(limits):
        engine.submit(replace(request(f"r{i}", (40, 41), limit, i), id=f"r{i}"))
    engine.stop_ids, stop = (), engine.stop_ids
    steps = []
    while engine.has_unfinished():
        steps.append([completion.request_id for completion in engine.step()])
    engine.stop_ids = stop
    assert [name for step in steps for name in step][-1] == "r3"
    assert len(steps) <= 3


def test_aborted_requests_never_complete(engine):
    for one in batch(max_tokens=50):
        engine.submit(one)
    engine.step()
    engine.abort([f"r{i}" for i in range(1, 6)] + ["unknown"])
    done = set()
    while engine.has_unfinished():
        done |= {completion.request_id for completion in engine.step()}
    assert done == {"r0"}
    assert drive(engine, batch()).keys() == {f"r{i}" for i in range(6)}


def test_drawn_tokens_grow_with_every_step_and_requests_asked_again_answer_the_same(engine):
    expected = drive(engine, batch())
    for one in batch():
        engine.submit(one)
    assert engine.drawn_tokens() == 0
    engine.step()
    first = engine.drawn_tokens()
    engine.step()
    assert 0 < first < engine.drawn_tokens()
    engine.abort([one.id for one in batch()])
    assert engine.drawn_tokens() == 0 and not engine.has_unfinished()
    again = drive(engine, batch())
    assert {key: done.response_ids for key, done in again.items()} == {
        key: done.response_ids for key, done in expected.items()
    }


def test_no_global_state_is_left_changed(engine, folders):
    before = global_state()
    drive(engine, batch())
    engine.load_weights(load_file(folders[1] / "model.safetensors").items(), 1)
    assert global_state() == before


def test_wrong_weights_are_refused_by_name(engine, folders):
    tensors = load_file(folders[0] / "model.safetensors")
    engine.submit(batch()[0])
    with pytest.raises(RuntimeError, match="while requests run"):
        engine.load_weights(tensors.items(), 1)
    engine.abort(["r0"])
    name = next(key for key in tensors if key.endswith("down_proj.weight"))
    for wrong, message in (
        ({**tensors, "model.layers.9.foo": torch.zeros(1)}, "model.layers.9.foo is not a tensor of this model"),
        ({**tensors, name: torch.zeros(3, 3)}, r"down_proj.weight has shape \(3, 3\)"),
        ({key: value for key, value in tensors.items() if key != name}, "1 tensors are missing, the first is"),
    ):
        with pytest.raises(DataError, match=message):
            engine.load_weights(wrong.items(), 1)
    engine.load_weights(tensors.items(), 0)
    assert len(drive(engine, batch())) == 6


def addresses(engine):
    """Where the parameters lie: CUDA graphs remember it."""
    read = lambda worker: {name: p.data_ptr() for name, p in worker.model_runner.get_model().named_parameters()}  # noqa: E731
    return engine._engine.collective_rpc(read)[0]


def test_parameters_keep_their_addresses(engine, folders):
    before = addresses(engine)
    engine.load_weights(load_file(folders[1] / "model.safetensors").items(), 1)
    assert len(before) > 10
    assert addresses(engine) == before


def test_updates_do_not_leak(engine, folders):
    import psutil

    tensors = load_file(folders[1] / "model.safetensors")
    process = psutil.Process()

    def update(times):
        for version in range(1, times + 1):
            engine.load_weights(tensors.items(), version)
        return process.memory_info().rss

    settled = update(20)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    assert update(40) - settled < 8 * size


def test_scoring_given_tokens_is_refused(engine):
    with pytest.raises(MissingComponentError, match="cannot score"):
        engine.submit(replace(batch()[0], given_ids=(1, 2)))


@pytest.mark.parametrize("barrier", [False, True])
def test_hinted_answers_start_while_clean_answers_run(engine, barrier):
    game = three_stages(clean=2, hints=2, answers=2)
    stages = {"R1": 60, "R2": 6, "R3": 12}
    game = replace(game, stages=tuple(replace(stage, max_tokens=stages[stage.name]) for stage in game.stages))
    engine.stop_ids, stop = (), engine.stop_ids
    spans = []
    scheduler = RolloutScheduler(
        game,
        {"reasoner": ScriptedRole(), "adversary": ScriptedRole()},
        {"shared": engine},
        ScriptedJudge(),
        lambda ids: "".join(chr(40 + token % 50) for token in ids),
        run_seed=1,
        temperature=1.0,
        top_p=1.0,
        max_prompt_tokens=100,
        barrier=barrier,
        on_span=spans.append,
    )
    bundle = scheduler.collect([Problem("p0", "what?", "4")], 0, game.stages)[0]
    engine.stop_ids = stop
    assert [len(bundle.of_stage(stage)) for stage in ("R1", "R2", "R3")] == [2, 2, 4]
    started = {span.submit_step for span in spans if span.stage == "R3"}
    ended = {span.end_step for span in spans if span.stage == "R3"}
    if barrier:
        assert started == {60}
        assert ended == {72}
    else:
        assert started == {6}
        assert ended == {18}
