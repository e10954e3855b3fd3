"""Traces of Hugging Face pairs: held against live speculative decoding, interrupted, resumed, and refused in one line."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from simulator.acceptance import Chain, Replay, accepted_prefix
from simulator.cli import main
from simulator.traces import Trace, read

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")
torch.set_num_threads(1)  # matrices of a few kilobytes

WORDS = [f"w{index}" for index in range(198)]
VOCABULARY = len(WORDS) + 2
OUTPUT_TOKENS = 40
LENGTHS = (3, 11, 1, 7, 5, 2, 9)
NO_END = VOCABULARY - 1
UNKNOWN, END = "<unk>", "<end>"
PAIR = ("--target", "target", "--draft", "draft", "--prompts", "prompts.jsonl", "--device", "cpu")


def save_tokenizer(folder: Path, words: list[str]) -> None:
    ids = {word: index for index, word in enumerate([UNKNOWN, *words, END])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN, eos_token=END)
    fast.save_pretrained(folder)


def save_model(folder: Path, blur: float, vocabulary: int = VOCABULARY, words: list[str] | None = None) -> None:
    """A random Llama; ``blur`` is noise on its weights, so that two of them agree on some tokens and not on others."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
        eos_token_id=NO_END,
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3 * blur)
        model.lm_head.weight[NO_END] = 0.0  # ends nothing unless a test says so
    model.save_pretrained(folder)
    save_tokenizer(folder, words or WORDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a draft and seven prompts of unequal length."""
    made = tmp_path_factory.mktemp("pair")
    save_model(made / "target", blur=0.0)
    save_model(made / "draft", blur=0.12)
    lines = []
    for index, length in enumerate(LENGTHS):
        words = np.random.default_rng(index).choice(WORDS, length)
        lines.append(json.dumps({"prompt": " ".join(words), "flavour": "even" if index % 2 == 0 else "odd"}))
    (made / "prompts.jsonl").write_text("\n".join(lines))
    return made


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def record(out: Path, *more: str) -> Result:
    arguments = [*PAIR, "--output-tokens", str(OUTPUT_TOKENS), "--out", str(out), *more]
    return CliRunner().invoke(main, ["trace", "record", *arguments])


def recorded(out: Path, *more: str) -> Trace:
    result = record(out, *more)
    assert result.exit_code == 0, result.output
    assert not out.with_name(out.name + ".part").exists()
    return read(out)


def requests(trace: Trace) -> list[list[int]]:
    return [trace.token[a:b].tolist() for a, b in zip(trace.offsets[:-1], trace.offsets[1:], strict=True)]


def loaded(role: str) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(role, local_files_only=True).eval()


def prompt_ids(index: int) -> list[int]:
    line = Path("prompts.jsonl").read_text().splitlines()[index]
    return [1 + WORDS.index(word) for word in json.loads(line)["prompt"].split()]


@torch.no_grad()
def logits(model: Any, ids: list[int]) -> Any:
    """At every position, without cache, padding or batch."""
    return model(torch.tensor([ids])).logits[0].double()


# ---- what is recorded is what happens


@pytest.fixture(scope="module")
def greedy(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return recorded(tmp_path_factory.mktemp("greedy") / "t.npz", "--batch", "3", "--exits", "0.5")


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
        np.testing.assert_allclose(getattr(greedy, name), getattr(single, name), rtol=2e-3, atol=1e-6)


def test_sampled_requests_do_not_depend_on_their_batch(tmp_path: Path) -> None:
    batched, single = (
        recorded(tmp_path / f"{size}.npz", "--temperature", "1.0", "--seed", "5", "--batch", size) for size in ("4", "1")
    )
    np.testing.assert_array_equal(batched.token, single.token)
    other = recorded(tmp_path / "other.npz", "--temperature", "1.0", "--seed", "6")
    assert batched.token.tolist() != other.token.tolist()


@pytest.mark.parametrize("cut", [(), ("--top-k", "5"), ("--top-p", "0.7"), ("--top-k", "20", "--top-p", "0.8")])
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
            np.testing.assert_allclose(getattr(trace, name)[start : start + len(written)], expected, rtol=3e-3, atol=1e-6)


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
    assert torch.bincount(found, minlength=6).tolist() == pytest.approx([0, 100, 0, 600, 300, 0], abs=1)
    assert draw(odds[None], torch.tensor([0.0], dtype=torch.double)).item() == 1


def test_ranks_break_ties_by_the_lower_id() -> None:
    from simulator.record.scores import rank_of

    said = torch.tensor([[1.0, 3.0, 3.0, 2.0]]).expand(4, -1)
    assert rank_of(said, torch.arange(4)).tolist() == [3, 0, 1, 2]


def test_an_exit_is_the_logit_lens_of_its_layer(greedy: Trace) -> None:
    model, written = loaded("target"), requests(greedy)[0]
    ids = prompt_ids(0) + written[:-1]
    with torch.no_grad():
        state = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[1][0, len(prompt_ids(0)) - 1 :]
        said = model.lm_head(model.model.norm(state)).numpy()
    ranks = [int((row > row[token]).sum()) for row, token in zip(said, written, strict=True)]
    assert greedy.exit_rank[0, : len(written)].tolist() == ranks
    assert greedy.header["exits"] == "logit lens, untrained"
    assert list(greedy.exit_fractions) == [0.5]


# ---- ends of texts


def test_a_text_ends_with_its_end(greedy: Trace, folder: Path, tmp_path: Path) -> None:
    """The same target, told that one of the tokens it writes ends a text: requests are cut behind its first."""
    end = requests(greedy)[1][4]
    shutil.copytree(folder / "target", tmp_path / "ending")
    transformers.GenerationConfig(eos_token_id=[end, NO_END]).save_pretrained(tmp_path / "ending")
    trace = recorded(tmp_path / "t.npz", "--target", str(tmp_path / "ending"), "--batch", "3")
    wanted = [one[: one.index(end) + 1] if end in one else one for one in requests(greedy)]
    kept = [one for one in wanted if len(one) >= 2]
    assert requests(trace) == kept
    assert min(map(len, kept)) < OUTPUT_TOKENS
    assert trace.header["requests"]["ended_at_once"] == len(wanted) - len(kept)
    assert trace.header["ends"] == [end, NO_END]
    assert trace.exit_rank.shape == (0, len(trace.token))
    assert Replay(trace).odds(3, None).mean_accepted > 0


def test_nothing_but_ends_is_no_trace(greedy: Trace, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "target", tmp_path / "ending")
    ends = sorted({one[0] for one in requests(greedy)})
    transformers.GenerationConfig(eos_token_id=ends).save_pretrained(tmp_path / "ending")
    result = record(tmp_path / "t.npz", "--target", str(tmp_path / "ending"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the target ended every text at once" in result.stderr
    assert not (tmp_path / "t.npz").exists()


# ---- the header


def test_the_header_says_what_was_recorded(greedy: Trace, tmp_path: Path) -> None:
    header = greedy.header
    shape = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 64, "vocabulary": VOCABULARY}
    assert header["models"]["target"]["shape"] == shape
    assert header["models"]["target"]["parameters"] == sum(one.numel() for one in loaded("target").parameters())
    assert header["models"]["target"]["hash"] != header["models"]["draft"]["hash"]
    assert header["flavours"] == ["even", "odd"]
    assert header["requests"] == {"recorded": 7, "ended_at_once": 0, "of": {"even": 4, "odd": 3}}
    assert str(tmp_path.parent) not in json.dumps(dict(header))
    assert header["command"].startswith("specsim trace record --target target --draft draft --prompts prompts.jsonl ")


def test_json_and_nothing_else_on_stdout(tmp_path: Path) -> None:
    result = record(tmp_path / "t.npz", "--json", "--limit", "2")
    assert json.loads(result.stdout)["tokens"] == 2 * OUTPUT_TOKENS
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("name", "content", "flavours"),
    [
        ("question.jsonl", '{"question_id": 1, "category": "qa", "turns": ["w1 w2", "w3"]}\n', ["qa"]),
        ("plain.txt", "w1 w2\n\nw3\n", ["prompts"]),
        ("bare.jsonl", '{"prompt": "w1\u2028w2"}', ["prompts"]),
    ],
)
def test_prompts_come_in_three_forms(name: str, content: str, flavours: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    trace = recorded(tmp_path / "t.npz", "--prompts", str(tmp_path / name), "--output-tokens", "3")
    assert list(trace.flavours) == flavours


# ---- interrupted and resumed


def interrupt_after(batches: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Interrupt the batch behind ``batches`` finished ones, as Ctrl-C would; the list counts batches begun."""
    from simulator.record import pair_recorder

    record_batch, begun = pair_recorder.record_batch, []

    def interrupted(pair: Any, prompts: Any, uniforms: Any, tick: Any) -> Any:
        begun.append(len(prompts))
        if len(begun) > batches:
            raise KeyboardInterrupt
        return record_batch(pair, prompts, uniforms, tick)

    monkeypatch.setattr(pair_recorder, "record_batch", interrupted)
    return begun


def test_an_interrupted_recording_goes_on_and_ends_in_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = ("--temperature", "1", "--batch", "2", "--output-tokens", "12")
    (tmp_path / "whole").mkdir()
    recorded(tmp_path / "whole" / "t.npz", *how)
    out = tmp_path / "t.npz"
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        result = record(out, *how)
        assert result.exit_code == 130
        assert "the same command goes on" in result.stderr
        assert not out.exists()
    kept = tmp_path / "t.npz.part"
    assert len(list(kept.glob("batch-*.npz"))) == 2

    changed = record(out, *how, "--seed", "9", "--top-k", "3")
    assert (changed.exit_code, len(changed.stderr.splitlines())) == (2, 1)
    assert "t.npz.part: was begun with sampling.top_k 0 (now 3), seed 0 (now 9); go on with what it was" in changed.stderr
    assert "delete this folder to start over" in changed.stderr

    begun = interrupt_after(99, monkeypatch)
    recorded(out, *how)
    assert begun == [2, 1]
    assert out.read_bytes() == (tmp_path / "whole" / "t.npz").read_bytes()


def test_killed_between_the_trace_and_the_tidying_is_still_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "t.npz"
    with monkeypatch.context() as patch:
        patch.setattr("simulator.record.parts.shutil.rmtree", lambda folder: None)
        assert record(out, "--limit", "2").exit_code == 0
    before = out.read_bytes()
    begun = interrupt_after(0, monkeypatch)
    recorded(out, "--limit", "2")
    assert (begun, out.read_bytes()) == ([], before)


def test_two_recordings_do_not_share_a_folder(tmp_path: Path) -> None:
    from simulator.record.parts import Parts

    with Parts(tmp_path / "t.npz", {}).opened():
        result = record(tmp_path / "t.npz")
    assert result.exit_code == 2
    assert "another process is recording here" in result.stderr


# ---- mistakes: one line, exit code 2, nothing left behind


def refused(tmp_path: Path, *arguments: str) -> str:
    before = {path: path.stat().st_size for path in tmp_path.rglob("*")}
    result = record(tmp_path / "t.npz", *arguments)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.output
    assert {path: path.stat().st_size for path in tmp_path.rglob("*")} == before
    return result.stderr


def test_a_draft_of_another_size(tmp_path: Path) -> None:
    save_model(tmp_path / "other", 0.0, VOCABULARY + 8)
    assert "target and draft must share one vocabulary; the models have target 200, draft 208 tokens" in refused(
        tmp_path, "--draft", str(tmp_path / "other")
    )


def test_a_draft_with_other_words(tmp_path: Path) -> None:
    save_model(tmp_path / "other", 0.0, words=[*WORDS[:7], "new", *WORDS[8:]])
    message = refused(tmp_path, "--draft", str(tmp_path / "other"))
    assert "(target 200, draft 200 tokens); 'new' is none in one, 8 in the other" in message


def test_a_model_that_lacks_weights_is_not_made_up(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder / "draft", tmp_path / "other")
    weights = load_file(tmp_path / "other" / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "other" / "model.safetensors", {"format": "pt"})
    assert "draft: the weights lack model.norm.weight" in refused(tmp_path, "--draft", str(tmp_path / "other"))
    (tmp_path / "other" / "model.safetensors").write_bytes(b"rubbish")
    refused(tmp_path, "--draft", str(tmp_path / "other"))
    (tmp_path / "other" / "model.safetensors").unlink()
    assert "there is no model.safetensors here" in refused(tmp_path, "--draft", str(tmp_path / "other"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "p.jsonl: holds no prompts"),
        ("\n\n", "p.jsonl: holds no prompts"),
        ('{"prompt": "w1"}\n{"prompt": }', "p.jsonl:2:12: not valid JSON"),
        ('{"prompt": " "}', "p.jsonl:1:1: expected an object with a text under 'prompt'"),
        ('{"turns": []}', "p.jsonl:1:1: expected an object with a text under 'prompt'"),
        ("[1]", "p.jsonl:1:1: expected an object with a text under 'prompt'"),
        ('{"prompt": "w1", "flavour": 3}', "p.jsonl:1:1: expected a name as flavour or category, got 3"),
        (json.dumps({"prompt": "w1 " * 100}), "p.jsonl:1:1: 100 prompt and 40 output tokens are more than the 128 positions"),
    ],
)
def test_prompts_that_are_none(content: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(content)
    assert expected in refused(tmp_path, "--prompts", str(tmp_path / "p.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--target", "none"), "none: target: there is no such folder"),
        (("--draft", "."), ".: draft: there is no config.json here"),
        (("--prompts", "none.jsonl"), "none.jsonl: cannot be read: No such file"),
        (("--out", "prompts.jsonl"), "prompts.jsonl: expected a file name that ends in .npz"),
        (("--out", "none/t.npz"), "none/t.npz: expected a file name that ends in .npz, in a folder that exists"),
        (("--exits", "0.5,x"), "--exits 0.5,x: expected shares between 0 and 1"),
        (("--exits", "0.5,0.6"), "--exits: expected rising shares of the target's 2 layers"),
        (("--top-k", "3"), "--top-k, --top-p: cut a distribution to sample from; give a --temperature"),
        (("--chat",), "--chat: the tokenizer's template refuses"),
    ],
)
def test_options_that_cannot_be_met(arguments: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    assert expected in refused(tmp_path, *arguments)


def test_a_trace_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_bytes(b"mine")
    assert "t.npz: is there already; delete it to record it anew" in refused(tmp_path)


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("simulator.record.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "trace record: needs torch; install it with pip install 'specsim[record]'" in refused(tmp_path)
