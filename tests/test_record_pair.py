"""Traces of Hugging Face pairs, held against live speculative decoding and against the models
themselves.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tiny_pair import (
    LENGTHS,
    NO_END,
    OUTPUT_TOKENS,
    VOCABULARY,
    WORDS,
    loaded,
    logits,
    make_pair,
    prompt_ids,
    record,
    recorded,
    requests,
    save_model,
    save_tokenizer,
)

from benchmarks.verification import accepted_prefix
from simulator.cli.main import main
from simulator.core.acceptance.cursors import Chain
from simulator.core.acceptance.sources import Replay
from simulator.core.acceptance.trace import Trace

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


# ---- what is recorded is what happens


@pytest.fixture(scope="module")
def greedy(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return recorded(
            tmp_path_factory.mktemp("greedy") / "t.npz", "--batch", "3", "--exits", "0.5"
        )


@pytest.mark.parametrize("gamma", [1, 3, 7])
def test_replay_accepts_what_live_speculative_decoding_accepts(greedy: Trace, gamma: int) -> None:
    target, draft = loaded("target"), loaded("draft")
    kept = []
    for index, written in enumerate(requests(greedy)[:3]):
        context = prompt_ids(index)
        context.append(int(logits(target, context)[-1].argmax()))  # the prefill's token
        replay = Replay(greedy)
        replay.order = [index]
        cursor, done = replay.cursor(0, None), 1
        while done + gamma + 1 <= OUTPUT_TOKENS:
            window = list(context)
            for _ in range(gamma):
                window.append(int(logits(draft, window)[-1].argmax()))
            wanted = logits(target, window)[len(context) - 1 :].argmax(-1).tolist()
            accepted = accepted_prefix(window[len(context) :], wanted[:gamma])
            context += wanted[: accepted + 1]
            assert cursor.judge(Chain(gamma)).accepted == accepted
            kept.append(accepted)
            done += accepted + 1
        assert context[len(prompt_ids(index)) :] == written[:done]
    assert 0 < np.mean(kept) < gamma


def test_padding_and_batch_change_nothing(greedy: Trace, tmp_path: Path) -> None:
    single = recorded(tmp_path / "one.npz", "--batch", "1", "--exits", "0.5")
    for name in ("offsets", "flavour", "token", "draft_rank", "exit_rank"):
        np.testing.assert_array_equal(getattr(greedy, name), getattr(single, name))
    for name in ("p", "q"):
        np.testing.assert_allclose(
            getattr(greedy, name), getattr(single, name), rtol=2e-3, atol=1e-6
        )


def test_sampled_requests_do_not_depend_on_their_batch(tmp_path: Path) -> None:
    batched, single = (
        recorded(tmp_path / f"{size}.npz", "--temperature", "1.0", "--seed", "5", "--batch", size)
        for size in ("4", "1")
    )
    np.testing.assert_array_equal(batched.token, single.token)
    other = recorded(tmp_path / "other.npz", "--temperature", "1.0", "--seed", "6")
    assert batched.token.tolist() != other.token.tolist()


@pytest.mark.parametrize(
    "cut", [(), ("--top-k", "5"), ("--top-p", "0.7"), ("--top-k", "20", "--top-p", "0.8")]
)
def test_probabilities_are_those_of_the_models(cut: tuple[str, ...], tmp_path: Path) -> None:
    trace = recorded(tmp_path / "t.npz", "--temperature", "0.8", "--limit", "2", *cut)
    models = {"p": loaded("target"), "q": loaded("draft")}
    options = dict(zip(cut[::2], map(float, cut[1::2]), strict=True))
    top_k, top_p = int(options.get("--top-k", 0)), options.get("--top-p", 1.0)
    for request, written in enumerate(requests(trace)):
        prompt = prompt_ids(request * len(LENGTHS) // 2)  # --limit spreads
        for name, model in models.items():
            rows = (logits(model, prompt + written)[len(prompt) - 1 : -1] / 0.8).softmax(-1).numpy()
            rows = np.array([cut_by_hand(row, top_k, top_p) for row in rows])
            expected = rows[np.arange(len(written)), written]
            start = trace.offsets[request]
            np.testing.assert_allclose(
                getattr(trace, name)[start : start + len(written)], expected, rtol=3e-3, atol=1e-6
            )


def cut_by_hand(odds: np.ndarray, top_k: int, top_p: float) -> np.ndarray:
    order = sorted(range(len(odds)), key=lambda token: (-odds[token], token))[: top_k or None]
    total, reached, kept = odds[order].sum(), 0.0, []
    for token in order:
        if reached < top_p:
            kept.append(token)
        reached += odds[token] / total
    result = np.zeros_like(odds)
    result[kept] = odds[kept] / odds[kept].sum()
    return result


def test_tokens_are_drawn_as_often_as_their_probability() -> None:
    from simulator.record.scores import draw

    odds = torch.tensor([0.0, 0.1, 0.0, 0.6, 0.3, 0.0])
    found = draw(odds.expand(1000, -1), (torch.arange(1000, dtype=torch.double) + 0.5) / 1000)
    assert torch.bincount(found, minlength=6).tolist() == pytest.approx(
        [0, 100, 0, 600, 300, 0], abs=1
    )
    assert draw(odds[None], torch.tensor([0.0], dtype=torch.double)).item() == 1


def test_ranks_break_ties_by_the_lower_id() -> None:
    from simulator.record.scores import rank_of

    said = torch.tensor([[1.0, 3.0, 3.0, 2.0]]).expand(4, -1)
    assert rank_of(said, torch.arange(4)).tolist() == [3, 0, 1, 2]


def test_an_exit_is_the_logit_lens_of_its_layer(greedy: Trace) -> None:
    model, written = loaded("target"), requests(greedy)[0]
    ids = prompt_ids(0) + written[:-1]
    with torch.no_grad():
        state = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[1][
            0, len(prompt_ids(0)) - 1 :
        ]
        said = model.lm_head(model.model.norm(state)).numpy()
    ranks = [int((row > row[token]).sum()) for row, token in zip(said, written, strict=True)]
    assert greedy.exit_rank[0, : len(written)].tolist() == ranks
    assert greedy.header["exits"] == "logit lens, untrained"
    assert list(greedy.exit_fractions) == [0.5]


@pytest.mark.parametrize(
    ("strategy", "exits"), [("vanilla_sd", ()), ("mirror_sd", ("--exits", "0.5"))]
)
def test_a_scenario_replays_it(
    strategy: str, exits: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path / "t.npz", *exits)
    durations = (
        {"target_ms": 30} if strategy == "vanilla_sd" else {"prefix_ms": 15, "suffix_ms": 15}
    )
    text = {
        "strategy": {"name": strategy, "gamma": 3},
        "durations": durations | {"draft_ms": 4},
        "acceptance": {"trace": "./t.npz"},
    }
    (tmp_path / "x.yaml").write_text(json.dumps(text))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["run", "./x.yaml", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["simulated"]


def test_a_vocabulary_of_more_than_16_bits(tmp_path: Path) -> None:
    for role, blur in (("target", 0.0), ("draft", 3.0)):
        save_model(tmp_path / role, blur, 70_000)
    pair = (
        "--target",
        str(tmp_path / "target"),
        "--draft",
        str(tmp_path / "draft"),
        "--temperature",
        "30",
    )
    trace = recorded(tmp_path / "t.npz", *pair)
    assert trace.token.dtype == np.uint32
    assert int(trace.token.max()) > 65_535 == int(trace.draft_rank.max())


# ---- ends of texts


def test_a_text_ends_with_its_end(greedy: Trace, folder: Path, tmp_path: Path) -> None:
    """The same target, told that one of the tokens it writes ends a text: requests are cut behind
    its first.
    """
    end = requests(greedy)[1][4]
    shutil.copytree(folder / "target", tmp_path / "ending")
    transformers.GenerationConfig(eos_token_id=[end, NO_END]).save_pretrained(tmp_path / "ending")
    trace = recorded(tmp_path / "t.npz", "--target", str(tmp_path / "ending"), "--batch", "3")
    wanted = [
        request[: request.index(end) + 1] if end in request else request
        for request in requests(greedy)
    ]
    kept = [one for one in wanted if len(one) >= 2]
    assert requests(trace) == kept
    assert min(map(len, kept)) < OUTPUT_TOKENS
    assert trace.header["requests"]["ended_at_once"] == len(wanted) - len(kept)
    assert trace.header["ends"] == [end, NO_END]
    assert trace.exit_rank.shape == (0, len(trace.token))
    assert Replay(trace).odds(3, None).mean_accepted > 0


def test_nothing_but_ends_is_no_trace(greedy: Trace, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "target", tmp_path / "ending")
    ends = sorted({request[0] for request in requests(greedy)})
    transformers.GenerationConfig(eos_token_id=ends).save_pretrained(tmp_path / "ending")
    result = record(tmp_path / "t.npz", "--target", str(tmp_path / "ending"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the target ended every text at once" in result.stderr
    assert not (tmp_path / "t.npz").exists()


# ---- other families than Llama: other positions, norms, names and attention


TINY = {
    "vocab_size": VOCABULARY,
    "initializer_range": 0.3,
    "eos_token_id": NO_END,
    "hidden_size": 32,
    "num_hidden_layers": 4,
}
WIDE = TINY | {"intermediate_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128}
GROUPED = WIDE | {"num_key_value_heads": 2, "head_dim": 8}
FAMILIES = {
    "GPT2": {
        "vocab_size": VOCABULARY,
        "n_embd": 32,
        "n_layer": 4,
        "n_head": 4,
        "n_positions": 128,
        "initializer_range": 0.3,
    },
    "GPTNeoX": WIDE,
    "OPT": TINY
    | {
        "ffn_dim": 64,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "word_embed_proj_dim": 32,
    },
    "Bloom": {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "n_layer": 4,
        "n_head": 4,
        "initializer_range": 0.3,
    },
    "Mistral": GROUPED | {"sliding_window": 16},
    "Qwen3": GROUPED,
    "Gemma2": GROUPED | {"sliding_window": 16, "query_pre_attn_scalar": 8},
    "Gemma3Text": GROUPED | {"sliding_window": 16, "query_pre_attn_scalar": 8},
    "Mixtral": GROUPED | {"num_local_experts": 4},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_are_recorded_the_same_in_any_batch(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(2)
    config = getattr(transformers, f"{family}Config")
    named = {"GPT2": "GPT2LMHeadModel"}.get(family, f"{family.removesuffix('Text')}ForCausalLM")
    model = getattr(transformers, named)(config(**FAMILIES[family]))
    model.save_pretrained(tmp_path / "other")
    save_tokenizer(tmp_path / "other", WORDS)
    how = ("--target", str(tmp_path / "other"), "--exits", "0.5")
    batched, single = (
        recorded(tmp_path / f"{size}.npz", *how, "--batch", size) for size in ("7", "1")
    )
    for name in ("token", "draft_rank", "exit_rank"):
        np.testing.assert_array_equal(getattr(batched, name), getattr(single, name))
    # asked by five tokens at a time
    monkeypatch.setattr("simulator.record.decoding.LOGITS_AT_ONCE", 10 * VOCABULARY)
    asked = recorded(tmp_path / "asked.npz", "--draft", str(tmp_path / "other"), "--limit", "2")
    said = logits(loaded(str(tmp_path / "other")), prompt_ids(0) + requests(asked)[0])[
        len(prompt_ids(0)) - 1 : -1
    ]
    ranks = [
        int((row > row[token]).sum()) for row, token in zip(said, requests(asked)[0], strict=True)
    ]
    assert asked.draft_rank[: len(ranks)].tolist() == ranks


# ---- the header


def test_the_header_says_what_was_recorded(greedy: Trace, tmp_path: Path) -> None:
    header = greedy.header
    shape = {
        "layers": 2,
        "width": 32,
        "heads": 4,
        "kv_heads": 2,
        "hidden": 64,
        "vocabulary": VOCABULARY,
    }
    assert header["models"]["target"]["shape"] == shape
    assert header["models"]["target"]["parameters"] == sum(
        parameter.numel() for parameter in loaded("target").parameters()
    )
    assert header["models"]["target"]["hash"] != header["models"]["draft"]["hash"]
    assert header["flavours"] == ["even", "odd"]
    assert header["requests"] == {"recorded": 7, "ended_at_once": 0, "of": {"even": 4, "odd": 3}}
    assert str(tmp_path.parent) not in json.dumps(dict(header))
    assert header["command"].startswith(
        "specsim trace record --target target --draft draft --prompts prompts.jsonl "
    )


def test_json_and_nothing_else_on_stdout(tmp_path: Path) -> None:
    result = record(tmp_path / "t.npz", "--json", "--limit", "2")
    assert json.loads(result.stdout)["tokens"] == 2 * OUTPUT_TOKENS
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("name", "content", "flavours"),
    [
        (
            "question.jsonl",
            '{"question_id": 1, "category": "qa", "turns": ["w1 w2", "w3"]}\n',
            ["qa"],
        ),
        ("plain.txt", "w1 w2\n\nw3\n", ["prompts"]),
        ("bare.jsonl", '{"prompt": "w1\u2028w2"}', ["prompts"]),
    ],
)
def test_prompts_come_in_three_forms(
    name: str, content: str, flavours: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    trace = recorded(tmp_path / "t.npz", "--prompts", str(tmp_path / name), "--output-tokens", "3")
    assert list(trace.flavours) == flavours


def test_a_prompt_is_put_into_the_chat_template(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "target", tmp_path / "chat")
    (tmp_path / "chat" / "chat_template.jinja").write_text("w1 {{ messages[0]['content'] }} w2")
    (tmp_path / "bare.txt").write_text("w3 w4")
    (tmp_path / "wrapped.txt").write_text("w1 w3 w4 w2")
    pair = ("--target", str(tmp_path / "chat"), "--output-tokens", "9")
    wrapped = recorded(tmp_path / "a.npz", *pair, "--prompts", str(tmp_path / "wrapped.txt"))
    chat = recorded(tmp_path / "b.npz", *pair, "--prompts", str(tmp_path / "bare.txt"), "--chat")
    assert requests(chat) == requests(wrapped)
    assert chat.header["prompts"]["chat_template"]
