"""The server generator against a server that misbehaves on purpose, and (slow) against a real one that is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tiny
from stand_in import write_task

from ranktuner.errors import DataError, InputError, RankTunerError
from ranktuner.evals import graders
from ranktuner.evals.generators import server as server_module
from ranktuner.evals.generators.server import ServerGenerator
from ranktuner.evals.run import Ask, evaluate, plan
from ranktuner.evals.samples import Answer, Settings, read_samples, requests_for

Reply = tuple[int, object] | None
"""Status and body (text as it is, else JSON); None hangs up without a word."""


class Server:
    """A server that answers as `behave` says, and remembers what it was asked."""

    def __init__(self, behave: Callable[[dict, int], Reply], models: object = None) -> None:
        self.behave, self.asked, self.most_at_once = behave, [], 0
        self.models = {"data": [{"id": "served"}]} if models is None else models
        self.lock, self.now = threading.Lock(), 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                self.reply((200, outer.models))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    outer.asked.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
                    number = len(outer.asked)
                    outer.now += 1
                    outer.most_at_once = max(outer.most_at_once, outer.now)
                made = outer.behave(body, number)
                with outer.lock:  # before the reply: it lets the client ask the next
                    outer.now -= 1
                self.reply(made)

            def reply(self, made: Reply) -> None:
                if made is None:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, body = made
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                if status == 429:
                    self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(data)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "pause_before", lambda tries: 0.01)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def start(behave: Callable[[dict, int], Reply], models: object = None) -> Server:
        made.append(Server(behave, models))
        return made[-1]

    yield start
    for one in made:
        one.close()


def completion(body: dict, **changes: object) -> tuple[int, object]:
    choice = {"message": {"content": f"seed {body['seed']}"}, "finish_reason": "stop", **changes}
    return 200, {"choices": [choice], "usage": {"completion_tokens": 7}}


PROMPTS = {f"p{i}": [{"role": "user", "content": f"question {i}"}] for i in range(4)}
SETTINGS = Settings(0.7, 0.9, 50)


def ask(generator: ServerGenerator, n: int = 2, settings: Settings = SETTINGS) -> list[Answer]:
    return list(generator.generate(requests_for("t", PROMPTS, n, 0, {}), settings))


def test_each_sample_is_a_request_with_its_own_seed(serve) -> None:
    server = serve(lambda body, _: completion(body))
    generator = ServerGenerator(server.url, key="secret", extra={"top_k": 0})
    answers = ask(generator)
    assert {(a.request.problem, a.request.index) for a in answers} == {(p, i) for p in PROMPTS for i in range(2)}
    assert all(a.text == f"seed {a.request.seed}" and (a.tokens, a.finish) == (7, "stop") for a in answers)
    body = next(b for b in server.asked if b["messages"] == PROMPTS["p1"])
    assert (body["path"], body["key"], body["model"]) == ("/v1/chat/completions", "Bearer secret", "served")
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["top_k"]) == (0.7, 0.9, 50, 0)
    assert generator.fingerprint == "server:served"


def test_plain_prompts_use_completions_with_the_stop_strings(serve) -> None:
    server = serve(lambda body, _: (200, {"choices": [{"text": "four", "finish_reason": "length"}]}))
    generator = ServerGenerator(server.url, form="plain")
    settings = Settings(0.0, 1.0, 5, form="plain", stop=("\n",))
    (answer,) = generator.generate(requests_for("t", {"a": "2+2 is"}, 1, 0, {}), settings)
    assert (answer.text, answer.finish) == ("four", "length")
    assert answer.note == "the server gave no count of tokens"
    (body,) = server.asked
    assert (body["path"], body["prompt"], body["stop"]) == ("/v1/completions", "2+2 is", ["\n"])


def test_requests_at_a_time_are_bounded(serve) -> None:
    server = serve(lambda body, _: (time.sleep(0.02), completion(body))[1])
    assert len(ask(ServerGenerator(server.url, concurrency=3), n=6)) == 24
    assert 2 <= server.most_at_once <= 3


@pytest.mark.parametrize(
    "trouble", [None, (500, "oops"), (503, "loading"), (429, "slow down"), (200, "<html>"), (200, {})]
)
def test_what_passes_is_tried_again_and_nothing_is_lost(serve, trouble) -> None:
    """Every other request goes wrong once: hang-ups, errors, nonsense."""
    failed: set[int] = set()

    def behave(body: dict, number: int) -> Reply:
        if body["seed"] % 2 and body["seed"] not in failed:
            failed.add(body["seed"])
            return trouble
        return completion(body)

    answers = ask(ServerGenerator(serve(behave).url), n=8)
    assert failed
    assert sorted(a.text for a in answers) == sorted(f"seed {r.seed}" for r in requests_for("t", PROMPTS, 8, 0, {}))


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        ((200, "<html>hello</html>"), DataError, "reply is not a completion: 200 '<html>hello</html>'"),
        ((200, {"choices": []}), DataError, "expected JSON with 'choices'"),
        ((200, {"choices": [{"message": {"content": 3}}]}), DataError, "holds no text"),
        ((401, "who are you"), InputError, "401 'who are you'; set the key in the variable that --key-env names"),
        ((404, "no such model"), InputError, "check --server and --model"),
        ((400, "unknown field top_k"), InputError, "400 'unknown field top_k'; check --model, the decoding options"),
        ((500, "out of memory"), RankTunerError, "it answered 500 'out of memory'. What is finished is kept"),
        (None, RankTunerError, "has not answered for 0 s: no answer"),
    ],
)
def test_what_stays_wrong_is_an_error_in_the_servers_words(serve, reply, kind, words: str) -> None:
    generator = ServerGenerator(serve(lambda *_: reply).url, patience=0.1)
    with pytest.raises(kind) as caught:
        ask(generator)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"message": {"content": None}}, ("", "stop", "")),
        ({"message": {"content": ""}}, ("", "stop", "")),
        ({"finish_reason": "length"}, ("seed", "length", "")),
        ({"finish_reason": "content_filter"}, ("", "error", "the server's content filter refused to answer")),
    ],
)
def test_answers_without_text_and_cut_answers_are_kept(serve, choice, expected) -> None:
    generator = ServerGenerator(serve(lambda body, _: completion(body, **choice)).url)
    for answer in ask(generator, n=1):
        assert (answer.text.split(" ")[0], answer.finish, answer.note) == expected


def test_a_prompt_too_long_for_the_server_is_counted_not_fatal(serve) -> None:
    def behave(body: dict, _: int) -> Reply:
        if "question 2" in body["messages"][0]["content"]:
            return 400, {"error": "This model's maximum context length is 8 tokens"}
        return completion(body)

    answers = ask(ServerGenerator(serve(behave).url))
    refused = [a for a in answers if a.finish == "error"]
    assert len(answers) == 8
    assert {a.request.problem for a in refused} == {"p2"}
    assert "maximum context length is 8" in refused[0].note


def test_a_slow_request_times_out_and_is_asked_again(serve) -> None:
    def behave(body: dict, number: int) -> Reply:
        if number == 1:
            time.sleep(0.6)
        return completion(body)

    server = serve(behave)
    answers = ask(ServerGenerator(server.url, timeout=0.3, concurrency=1), n=1)
    assert (len(answers), len(server.asked)) == (4, 5)


def test_models_are_asked_for_by_name_unless_there_is_one(serve) -> None:
    two = serve(lambda body, _: completion(body), {"data": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(InputError, match=r"serves 2 models \(a, b\): name one with --model"):
        ServerGenerator(two.url)
    assert ServerGenerator(two.url + "/v1/", "b").model == "b"
    with pytest.raises(InputError, match="expected a list of models: is it an OpenAI-compatible server"):
        ServerGenerator(serve(lambda body, _: completion(body), "hello").url)
    with pytest.raises(InputError, match=r"is it running.*Try: curl http://127\.0\.0\.1:1/v1/models"):
        ServerGenerator("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "localhost:8000"}, "expected an address that begins with http://"),
        ({"url": "http://x", "concurrency": 0}, "concurrency=0"),
        ({"url": "http://x", "timeout": 0}, "a time-out above 0"),
    ],
)
def test_impossible_options_are_refused(arguments, words: str) -> None:
    with pytest.raises(InputError) as caught:
        ServerGenerator(model="m", **arguments)
    assert words in str(caught.value)


def test_a_server_that_dies_half_way_is_waited_for_and_nothing_is_asked_twice(
    serve, tmp_path: Path, monkeypatch
) -> None:
    """The run gives up after its patience, keeps what it has, and the next one asks for the rest only."""
    monkeypatch.setitem(graders.GRADERS, "math", "stand_in:grade")
    monkeypatch.setattr("ranktuner.evals.tasks.loading.unaccepted", lambda *_: [], raising=False)
    server = serve(lambda body, number: completion(body) if number <= 7 else None)
    asked = plan(Ask(str(write_task(tmp_path)), n=4)).for_form("chat")
    said: list[str] = []
    with pytest.raises(RankTunerError, match="start the server again and run the same command"):
        evaluate(asked, ServerGenerator(server.url, patience=0.1), tmp_path / "run", say=said.append)
    kept = [(s.problem, s.index) for s in read_samples(tmp_path / "run" / "samples" / "digits.jsonl")]
    assert len(kept) == 7
    healthy = serve(lambda body, _: completion(body, message={"content": f"The answer is {body['seed'] % 10}."}))
    found = evaluate(asked, ServerGenerator(healthy.url), tmp_path / "run", say=said.append)
    assert len(healthy.asked) == 13
    assert found.numbers["samples"] == 20
    assert found.numbers["complete"]


def test_waits_grow_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    waits = [server_module.pause_before(tries) for tries in range(1, 30)]
    assert waits[0] <= 0.5
    assert max(waits) <= server_module.LONGEST_PAUSE
    assert min(waits[10:]) >= server_module.LONGEST_PAUSE / 2


class Served:
    """`transformers serve` on loopback; can be killed and started again on the same port."""

    def __init__(self, model: Path, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.model, self.log = model, log
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, wait: bool = True) -> None:
        command = [str(Path(sys.executable).with_name("transformers")), "serve", str(self.model)]
        self.process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(self.port), "--device", "cpu", "--dtype", "float32"],
            stdout=self.log.open("ab"),
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        while wait:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.mark.slow
def test_a_real_server_killed_and_restarted_half_way_gives_the_same_verdict_path(tmp_path: Path, monkeypatch) -> None:
    """The same weights greedily in this process and behind `transformers serve`, which is killed after 8 answers."""
    pytest.importorskip("fastapi", reason="`transformers serve` needs fastapi, uvicorn and openai (the dev extra)")
    pytest.importorskip("uvicorn")
    pytest.importorskip("openai")
    from ranktuner.evals.generators.hf import TransformersGenerator

    monkeypatch.setattr(server_module, "pause_before", lambda tries: 0.3)
    monkeypatch.setitem(graders.GRADERS, "math", "stand_in:grade")
    monkeypatch.setattr("ranktuner.evals.tasks.loading.unaccepted", lambda *_: [], raising=False)
    model = tiny.model_folder(tmp_path / "model")
    toml = str(write_task(tmp_path / "task", problems=12))
    asked = plan(Ask(toml, n=2, temperature=0.0, max_new_tokens=40)).for_form("chat")
    served = Served(model, tmp_path / "serve.log")
    served.start()
    killed = threading.Event()
    try:
        generator = ServerGenerator(served.url, str(model), concurrency=2, patience=120)
        whole = generator.generate

        def killing(requests, settings):
            for i, answer in enumerate(whole(requests, settings)):
                yield answer
                if i == 7:
                    served.kill()
                    killed.set()
                    threading.Timer(1.0, served.start, kwargs={"wait": False}).start()

        generator.generate = killing
        there = evaluate(asked, generator, tmp_path / "served")
    finally:
        served.kill()
    assert killed.is_set()
    here = evaluate(asked, TransformersGenerator.load(str(model), device="cpu", dtype="float32"), tmp_path / "here")
    texts = [
        {(s.problem, s.index): (s.text, s.finish) for s in read_samples(tmp_path / run / "samples" / "digits.jsonl")}
        for run in ("served", "here")
    ]
    assert len(texts[0]) == 24
    assert texts[0] == texts[1]
    assert there.numbers["verdicts"] == here.numbers["verdicts"]
    assert there.numbers["problems"] == here.numbers["problems"]
