"""Any OpenAI-compatible server: vLLM, SGLang, llama.cpp, `transformers serve`, TGI, a hosted one.

One request for each sample, with its own seed; at most `concurrency` at a time. A server that goes away is waited for,
with growing pauses, as long as `patience` says; what it said that makes no sense is an error with its words.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from ranktuner.errors import DataError, InputError, RankTunerError
from ranktuner.evals.generators.wire import Reply, UnreachableError, get, post
from ranktuner.evals.samples import Answer, Request, Settings

NONSENSE_TRIES = 3
"""A reply that is not the protocol's is asked for again, this many times in all."""

LONGEST_PAUSE = 20.0
"""Seconds between two tries, at most."""


class ServerGenerator:
    """Answers from a server."""

    name = "server"

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        key: str | None = None,
        form: Literal["chat", "plain"] = "chat",
        concurrency: int = 16,
        timeout: float = 600.0,
        patience: float = 300.0,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Ask the server what it serves.

        Args:
            url: `http://host:port`, with or without `/v1`.
            model: the name to ask for; may be left out where the server has one only.
            key: sent as the bearer token.
            form: `chat` uses /chat/completions, `plain` uses /completions.
            concurrency: requests at a time.
            timeout: seconds that one request may take.
            patience: seconds to wait for a server that does not answer, before giving up.
            extra: more fields for the body of each request.
        """
        if concurrency < 1 or timeout <= 0 or patience < 0:
            raise InputError(
                f"concurrency={concurrency}, timeout={timeout}, patience={patience}: expected at least one request at "
                "a time, a time-out above 0 and no negative patience"
            )
        self.base, self.form = _base(url), form
        self.concurrency, self.timeout, self.patience = concurrency, timeout, patience
        self.extra = dict(extra or {})
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.model = model or self._only_model()
        # What a server runs cannot be seen from outside; the name it goes by is all there is to tell models apart.
        self.fingerprint = f"server:{self.model}"

    def _only_model(self) -> str:
        url = f"{self.base}/models"
        try:
            reply = get(url, self._headers, timeout=min(self.timeout, 30))
        except UnreachableError as error:
            raise InputError(
                f"--server {self.base}: {error}: is it running, and is this its address? Try: curl {url}"
            ) from error
        listed = reply.json().get("data") if isinstance(reply.json(), dict) else None
        names = [m["id"] for m in listed or [] if isinstance(m, dict) and isinstance(m.get("id"), str)]
        if reply.status != 200 or not isinstance(listed, list):
            raise InputError(
                f"--server {self.base}: {url} answered {reply.brief()}, expected a list of models: is it an "
                "OpenAI-compatible server? If it has no such list, name the model with --model"
            )
        if len(names) != 1:
            raise InputError(
                f"--server {self.base} serves {len(names)} models ({', '.join(names[:8]) or 'none'}): name one with "
                "--model"
            )
        return str(names[0])

    def generate(self, requests: Sequence[Request], settings: Settings) -> Iterator[Answer]:
        """Yield the answers as they come."""
        work: queue.SimpleQueue[Request] = queue.SimpleQueue()
        for request in requests:
            work.put(request)
        call = _Call(self, settings, work)
        # Threads of our own, as daemons: a pool's would hold the end of the program until the last time-out.
        for _ in range(min(self.concurrency, len(requests))):
            threading.Thread(target=call.work_off, daemon=True).start()
        try:
            for _ in requests:
                found = call.finished.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            call.stop.set()

    def body(self, request: Request, settings: Settings) -> dict[str, Any]:
        """Return what is asked of the server for one sample."""
        if isinstance(request.prompt, str):
            prompt: dict[str, Any] = {"prompt": request.prompt}
        else:
            prompt = {"messages": [dict(message) for message in request.prompt]}
        return {
            "model": self.model,
            **prompt,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_tokens": settings.max_new_tokens,
            "seed": request.seed,
            **({"stop": list(settings.stop)} if settings.stop else {}),
            **self.extra,
        }

    def post(self, body: Mapping[str, Any]) -> Reply:
        """Send one request."""
        path = "completions" if "prompt" in body else "chat/completions"
        return post(f"{self.base}/{path}", body, self._headers, timeout=self.timeout)


class _Call:
    """One call of `generate`: what its threads share."""

    def __init__(self, server: ServerGenerator, settings: Settings, work: queue.SimpleQueue[Request]) -> None:
        self.server, self.settings, self.work = server, settings, work
        self.finished: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        self.stop = threading.Event()
        self.last_good = time.monotonic()
        """When the server last said something useful to anybody."""

    def work_off(self) -> None:
        while not self.stop.is_set():
            try:
                request = self.work.get_nowait()
            except queue.Empty:
                return
            try:
                answer = self._answer(request)
            except BaseException as error:
                self.finished.put(error)
                return
            if answer is not None:
                self.finished.put(answer)

    def _answer(self, request: Request) -> Answer | None:
        """Ask until there is an answer; None when the whole call is stopped."""
        body, tries, nonsense = self.server.body(request, self.settings), 0, 0
        asked = time.monotonic()
        while not self.stop.is_set():
            pause: float | None = None
            try:
                reply = self.server.post(body)
            except UnreachableError as error:
                trouble = str(error)
            else:
                if reply.status == 200:
                    try:
                        answer = read_answer(request, reply)
                    except DataError:
                        nonsense += 1
                        if nonsense == NONSENSE_TRIES:
                            raise
                        continue
                    self.last_good = time.monotonic()
                    return answer
                if refused := _refusal(request, reply):
                    return refused
                trouble, pause = f"it answered {reply.brief()}", reply.retry_after
            if time.monotonic() - max(asked, self.last_good) > self.server.patience:
                raise RankTunerError(
                    f"--server {self.server.base} has not answered for {self.server.patience:.0f} s: {trouble}. What "
                    "is finished is kept; start the server again and run the same command to go on (--patience waits "
                    "longer)"
                )
            tries += 1
            self.stop.wait(pause if pause is not None else pause_before(tries))
        return None


def pause_before(tries: int) -> float:
    """Return the seconds to wait before the next try: doubling, with a random share so that threads do not march."""
    return min(LONGEST_PAUSE, 0.25 * 2.0 ** min(tries, 10)) * random.uniform(0.5, 1.0)


def read_answer(request: Request, reply: Reply) -> Answer:
    """Read a completion; what is not one is an error that shows the server's words."""
    record = reply.json()
    choices = record.get("choices") if isinstance(record, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise DataError(f"the server's reply is not a completion: {reply.brief()}; expected JSON with 'choices'")
    choice = choices[0]
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    if text is not None and not isinstance(text, str):
        raise DataError(f"the server's reply holds no text: {reply.brief()}")
    reason = choice.get("finish_reason")
    if reason == "content_filter":
        return Answer(request, "", "error", 0, "the server's content filter refused to answer")
    usage = record.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    finish: Literal["length", "stop"] = "length" if reason == "length" else "stop"
    if isinstance(tokens, int):
        return Answer(request, text or "", finish, tokens)
    return Answer(request, text or "", finish, 0, "the server gave no count of tokens")


def _refusal(request: Request, reply: Reply) -> Answer | None:
    """Return the answer for a prompt that the server finds too long; raise what trying again cannot mend."""
    if reply.status in (408, 409, 425, 429) or reply.status >= 500:
        return None
    words = reply.text.lower()
    if reply.status in (400, 413, 422) and any(w in words for w in ("context", "too long", "maximum length")):
        return Answer(request, "", "error", 0, f"the server refused the prompt: {reply.brief()}")
    hint = {
        401: "set the key in the variable that --key-env names",
        403: "set the key in the variable that --key-env names",
        404: "check --server and --model",
    }.get(reply.status, "check --model, the decoding options and --server-extra")
    raise InputError(f"the server refused the request: {reply.brief()}; {hint}")


def _base(url: str) -> str:
    """Return the address up to and with /v1."""
    base = url.strip().rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise InputError(f"--server {url}: expected an address that begins with http:// or https://")
    for tail in ("/chat/completions", "/completions", "/models"):
        base = base.removesuffix(tail)
    return base if base.rsplit("/", 1)[-1].startswith("v") and base.count("/") > 2 else f"{base}/v1"
