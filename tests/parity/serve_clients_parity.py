"""The real clients `openai` and `anthropic` against `megatron serve`.

The model is a tiny random one. Texts, token ids, log-probabilities, numbers of tokens and
embeddings must be those of transformers, greedy; what cannot be greedy must be the same twice.
Streams must add up to the whole answers, and errors must arrive as the clients' own exceptions.

Usage: serve_clients_parity.py [--only NAME]     checks whose name begins so"""
import argparse
import asyncio
import enum
import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import anthropic
import numpy as np
import openai
from pydantic import BaseModel, Field

from report import Report
from serving import ChatModel, Server

NAME, KEY = "tiny", "sk-secret"
NUM_NEW = 24
PROMPTS = ["Once upon a time", "What is 2 < 3 & 'why'?", "Und auf 中文? 🎉", "get_weather of Rome"]
CHATS = [
    [{"role": "user", "content": "What is 2 + 2?"}],
    [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Und auf 中文?"},
        {"role": "assistant", "content": "Because."},
        {"role": "user", "content": "Why, then?"},
    ],
    [{"role": "user", "content": "Tell me of Köln"}],
]
WEATHER = {
    "name": "get_weather",
    "description": "Returns the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "enum": ["Rome", "Paris"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
TOOL = {"type": "function", "function": WEATHER}
ANTHROPIC_TOOL = {
    "name": WEATHER["name"],
    "description": WEATHER["description"],
    "input_schema": WEATHER["parameters"],
}
GREEDY = {"model": NAME, "temperature": 0}
# The client of Anthropic has no name for it any more.
GREEDY_MESSAGE = {"model": NAME, "extra_body": {"temperature": 0}}


class Colour(enum.Enum):
    red = "red"
    green = "green"


class Answer(BaseModel):
    city: Literal["Rome", "Paris"]
    sunny: bool
    colour: Colour
    degrees: Annotated[int, Field(ge=-9, le=45)]


class Clients:
    """The clients of one server, and what transformers expects of it."""

    def __init__(self, report, model, server):
        self.report, self.model, self.server = report, model, server
        self.openai = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0)

    def same(self, name, got, wanted):
        self.report.result(name, got == wanted, "" if got == wanted else f"{got!r} not {wanted!r}")

    def raises(self, name, error, call, *words):
        """The call must raise exactly this error, with these words in its message."""
        try:
            got = call()
        except error as raised:
            missing = [word for word in words if word not in str(raised)]
            exact = type(raised) is error
            return self.report.result(name, exact and not missing, str(raised)[:150])
        except Exception as other:
            got = f"{type(other).__name__}: {other}"
        self.report.result(name, False, f"no {error.__name__}, but {got!r:.200}")

    def expected(self, ids, count=NUM_NEW):
        """The greedy text behind ids: its ids, its text, why it ends."""
        made = self.model.greedy(ids, count)
        return made, self.model.text(made), "stop" if made[-1] == self.model.end else "length"

    def log_probs(self, ids, made):
        return self.model.log_probs(ids + made)[len(ids) - 1 :]


# Completions


def completions(to):
    for prompt in PROMPTS:
        ids = to.model.ids(prompt)
        made, text, finish = to.expected(ids)
        answer = to.openai.completions.create(
            prompt=prompt, max_tokens=NUM_NEW, logprobs=2, extra_body={"return_token_ids": True},
            **GREEDY,
        )  # fmt: skip
        choice = answer.choices[0]
        to.same(f"completion {prompt!r}", (choice.text, choice.finish_reason), (text, finish))
        given = choice.model_extra.get("token_ids")
        to.same(f"completion {prompt!r}, ids", given, made)
        log_probs = choice.logprobs.token_logprobs
        to.report.close(
            f"completion {prompt!r}, log-probabilities",
            log_probs,
            to.log_probs(ids, made),
        )
        to.same(f"completion {prompt!r}, the chosen token is the best",
                [max(top.values()) for top in choice.logprobs.top_logprobs], log_probs)  # fmt: skip
        to.same(
            f"completion {prompt!r}, usage",
            (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens),
            (len(ids), len(made), len(ids) + len(made)),
        )
    ids = to.model.ids(PROMPTS[0])
    answer = to.openai.completions.create(prompt=ids, max_tokens=NUM_NEW, **GREEDY)
    to.same("completion of ids", answer.choices[0].text, to.expected(ids)[1])
    lists = [to.model.ids(prompt) for prompt in PROMPTS]
    for prompts in (PROMPTS, lists):
        answer = to.openai.completions.create(prompt=prompts, max_tokens=8, **GREEDY)
        to.same(
            f"completions of a list of {type(prompts[0]).__name__}",
            [(choice.index, choice.text) for choice in answer.choices],
            [(i, to.expected(ids, 8)[1]) for i, ids in enumerate(lists)],
        )


def completion_samples(to):
    def sample(**given):
        answer = to.openai.completions.create(
            model=NAME, prompt=PROMPTS[0], max_tokens=12, n=3, logprobs=0, temperature=1.0,
            extra_body={"return_token_ids": True}, **given,
        )  # fmt: skip
        return answer.choices

    first, second, other = sample(seed=7), sample(seed=7), sample(seed=8)
    texts = [[choice.text for choice in choices] for choices in (first, second, other)]
    to.same("n and seed: the same twice", texts[0], texts[1])
    to.report.result("n: different texts", len(set(texts[0])) == 3)
    to.report.result("another seed, other texts", texts[0] != texts[2])
    ids = to.model.ids(PROMPTS[0])
    ours, theirs = [], []
    for choice in first:
        values = choice.logprobs.token_logprobs
        ours += values
        theirs += to.log_probs(ids, choice.model_extra["token_ids"])[: len(values)]
    to.report.close("log-probabilities of samples", ours, theirs)


def completion_stop(to):
    text = to.expected(to.model.ids(PROMPTS[1]))[1]
    stop = text[7:10]
    answer = to.openai.completions.create(
        prompt=PROMPTS[1], max_tokens=NUM_NEW, stop=["nowhere", stop], **GREEDY
    )
    choice = answer.choices[0]
    to.same("stop", (choice.text, choice.finish_reason), (text[: text.find(stop)], "stop"))
    events = to.openai.completions.create(
        prompt=PROMPTS[1], max_tokens=NUM_NEW, stop=stop, stream=True, **GREEDY
    )
    to.same("stop in a stream", "".join(event.choices[0].text for event in events), choice.text)


def completion_echo(to):
    ids = to.model.ids(PROMPTS[0])
    made, text, _ = to.expected(ids, 5)
    for count in (5, 1, 0):
        with to.report.guard(f"echo with {count} tokens"):
            choice = to.openai.completions.create(
                prompt=PROMPTS[0], max_tokens=count, echo=True, logprobs=1, **GREEDY
            ).choices[0]
            wanted = PROMPTS[0] + to.model.text(made[:count])
            to.same(f"echo with {count} tokens", choice.text, wanted)
            log_probs = choice.logprobs.token_logprobs
            to.same(f"echo with {count} tokens: nothing before the first", log_probs[0], None)
            to.report.close(
                f"echo with {count} tokens: log-probabilities",
                log_probs[1:],
                to.model.log_probs(ids + made[:count]),
            )
            offsets = choice.logprobs.text_offset
            to.same(f"echo with {count} tokens: offsets begin", offsets[0], 0)


def completion_streams(to):
    for prompt in PROMPTS:
        ids = to.model.ids(prompt)
        made, text, finish = to.expected(ids)
        events = list(
            to.openai.completions.create(
                prompt=prompt, max_tokens=NUM_NEW, stream=True,
                stream_options={"include_usage": True}, **GREEDY,
            )
        )  # fmt: skip
        choices = [event.choices[0] for event in events if event.choices]
        to.same(f"stream of {prompt!r}", "".join(choice.text for choice in choices), text)
        to.same(f"stream of {prompt!r}, its end", choices[-1].finish_reason, finish)
        to.same(f"stream of {prompt!r}, usage", events[-1].usage.completion_tokens, len(made))
        to.same(f"stream of {prompt!r}, one id", len({event.id for event in events}), 1)
    with to.report.guard("stream with log-probabilities"):
        ids = to.model.ids(PROMPTS[0])
        events = to.openai.completions.create(
            prompt=PROMPTS[0], max_tokens=NUM_NEW, stream=True, logprobs=1, **GREEDY
        )
        ours = [
            value
            for event in events
            for choice in event.choices
            if choice.logprobs
            for value in choice.logprobs.token_logprobs
        ]
        made = to.expected(ids)[0]
        theirs = to.log_probs(ids, made)
        to.same("stream with log-probabilities, all of them", len(ours), len(made))
        to.report.close("stream with log-probabilities", ours, theirs)


# Chats


def chats(to):
    for number, messages in enumerate(CHATS):
        ids = to.model.chat_ids(messages)
        made, text, finish = to.expected(ids)
        answer = to.openai.chat.completions.create(
            messages=messages, max_completion_tokens=NUM_NEW, logprobs=True, top_logprobs=2,
            **GREEDY,
        )  # fmt: skip
        choice = answer.choices[0]
        to.same(f"chat {number}", (choice.message.content, choice.finish_reason), (text, finish))
        to.same(
            f"chat {number}, usage",
            (answer.usage.prompt_tokens, answer.usage.completion_tokens),
            (len(ids), len(made)),
        )
        values = choice.logprobs.content
        ours = [value.logprob for value in values]
        theirs = to.log_probs(ids, made)
        to.report.close(f"chat {number}, log-probabilities", ours, theirs)
        to.same(f"chat {number}, the chosen token is the best",
                [value.top_logprobs[0].logprob for value in values], ours)  # fmt: skip
        whole = b"".join(bytes(value.bytes) for value in values).decode(errors="replace")
        shown = to.model.tokenizer.decode(made)  # log-probabilities list special tokens, too
        to.same(f"chat {number}, bytes of tokens", whole, shown)


def chat_streams(to):
    for number, messages in enumerate(CHATS):
        ids = to.model.chat_ids(messages)
        made, text, finish = to.expected(ids)
        events = list(
            to.openai.chat.completions.create(
                messages=messages, max_tokens=NUM_NEW, stream=True, logprobs=True,
                stream_options={"include_usage": True}, **GREEDY,
            )
        )  # fmt: skip
        choices = [event.choices[0] for event in events if event.choices]
        got = "".join(choice.delta.content or "" for choice in choices)
        to.same(f"chat stream {number}", (got, choices[-1].finish_reason), (text, finish))
        to.same(f"chat stream {number}, role", choices[0].delta.role, "assistant")
        usage = events[-1].usage
        to.same(
            f"chat stream {number}, usage",
            (usage.prompt_tokens, usage.completion_tokens),
            (len(ids), len(made)),
        )
        ours = [
            value.logprob
            for choice in choices
            if choice.logprobs
            for value in choice.logprobs.content
        ]
        theirs = to.log_probs(ids, made)[: len(ours)]
        to.report.close(f"chat stream {number}, log-probabilities", ours, theirs)
    with to.openai.chat.completions.stream(
        messages=CHATS[0], max_tokens=NUM_NEW, **GREEDY
    ) as stream:
        last = stream.get_final_completion()
    wanted = to.expected(to.model.chat_ids(CHATS[0]))[1]
    to.same("chat stream by its helper", last.choices[0].message.content, wanted)


def chat_samples(to):
    def sample(**given):
        return to.openai.chat.completions.create(
            model=NAME, messages=CHATS[0], max_tokens=12, n=2, seed=3, **given
        )

    first, second = sample(), sample()
    texts = [[choice.message.content for choice in one.choices] for one in (first, second)]
    to.same("chat, n and seed: the same twice", texts[0], texts[1])
    streamed = ["", ""]
    for event in sample(stream=True):
        for choice in event.choices:
            streamed[choice.index] += choice.delta.content or ""
    to.same("chat, n and seed: the same in a stream", streamed, texts[0])
    text = to.expected(to.model.chat_ids(CHATS[0]))[1]
    choice = to.openai.chat.completions.create(
        messages=CHATS[0], max_tokens=NUM_NEW, stop=text[5:7], **GREEDY
    ).choices[0]
    to.same("chat, stop", (choice.message.content, choice.finish_reason),
            (text[: text.find(text[5:7])], "stop"))  # fmt: skip


def tools(to):
    """Tools that are offered are in the prompt, with calls and results of earlier turns."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Rome", "days": 2}'},
    }
    turns = [
        *CHATS[0],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    inner = {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}
    theirs = [
        *CHATS[0],
        {"role": "assistant", "content": "", "tool_calls": [{**call, "function": inner}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    for name, ours, wanted in (("offered", CHATS[0], CHATS[0]), ("used", turns, theirs)):
        ids = to.model.chat_ids(wanted, tools=[TOOL])
        _, text, _ = to.expected(ids)
        answer = to.openai.chat.completions.create(
            messages=ours, tools=[TOOL], max_tokens=NUM_NEW, **GREEDY
        )
        to.same(f"tools {name}, prompt", answer.usage.prompt_tokens, len(ids))
        to.same(f"tools {name}", answer.choices[0].message.content, text)
    answer = to.openai.chat.completions.create(
        messages=CHATS[0], tools=[TOOL], tool_choice="none", max_tokens=2, **GREEDY
    )
    wanted = len(to.model.chat_ids(CHATS[0]))
    to.same("tools with tool_choice none", answer.usage.prompt_tokens, wanted)


def check_call(to, name, arguments, function="get_weather"):
    value = json.loads(arguments)
    right = value["city"] in ("Rome", "Paris") and 1 <= value["days"] <= 9 and len(value) == 2
    to.report.result(name, right and function == "get_weather", arguments)


def forced_tools(to):
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ("required", named):
        name = choice if isinstance(choice, str) else "named"
        with to.report.guard(f"tool_choice {name}"):
            answer = to.openai.chat.completions.create(
                messages=CHATS[0], tools=[TOOL], tool_choice=choice, parallel_tool_calls=False,
                max_tokens=200, **GREEDY,
            ).choices[0]  # fmt: skip
            call = answer.message.tool_calls[0].function
            check_call(to, f"tool_choice {name}", call.arguments, call.name)
            if choice == "required":
                to.same("tool_choice required, its end", answer.finish_reason, "tool_calls")
    with to.report.guard("tool_choice required in a stream"):
        events = list(
            to.openai.chat.completions.create(
                messages=CHATS[0], tools=[TOOL], tool_choice="required", stream=True,
                parallel_tool_calls=False, max_tokens=200, **GREEDY,
            )
        )  # fmt: skip
        calls = [
            call for event in events for c in event.choices for call in c.delta.tool_calls or []
        ]
        arguments = "".join(call.function.arguments or "" for call in calls)
        check_call(to, "tool_choice required in a stream", arguments, calls[0].function.name)
        to.report.result("its arguments come in parts", len(calls) > 3, f"{len(calls)} parts")
    with to.report.guard("tool_choice required of Responses"):
        tool = {"type": "function", "strict": True, **WEATHER}
        answer = to.openai.responses.create(
            input="Weather?", tools=[tool], tool_choice="required", max_output_tokens=200,
            parallel_tool_calls=False, **GREEDY,
        )  # fmt: skip
        call = next(item for item in answer.output if item.type == "function_call")
        check_call(to, "tool_choice required of Responses", call.arguments, call.name)
    with to.report.guard("tool_choice any of messages"):
        answer = to.anthropic.messages.create(
            messages=CHATS[0], tools=[ANTHROPIC_TOOL], max_tokens=200,
            tool_choice={"type": "any", "disable_parallel_tool_use": True}, **GREEDY_MESSAGE,
        )  # fmt: skip
        call = next(block for block in answer.content if block.type == "tool_use")
        check_call(to, "tool_choice any of messages", json.dumps(call.input), call.name)
        to.same("tool_choice any of messages, its end", answer.stop_reason, "tool_use")


def structured_output(to):
    given = dict(max_tokens=200, model=NAME)
    for temperature in (0, 1):
        name = f"structured output at temperature {temperature}"
        with to.report.guard(name):
            message = to.openai.chat.completions.parse(
                messages=CHATS[0], response_format=Answer, temperature=temperature, seed=4, **given
            ).choices[0].message  # fmt: skip
            to.report.result(name, isinstance(message.parsed, Answer), message.content)
    with to.report.guard("structured output of Responses"):
        answer = to.openai.responses.parse(
            input="Weather?", text_format=Answer, max_output_tokens=200, **GREEDY
        )
        right = isinstance(answer.output_parsed, Answer)
        to.report.result("structured output of Responses", right, answer.output_text)
    with to.report.guard("structured output in a stream"):
        with to.openai.chat.completions.stream(
            messages=CHATS[0], response_format=Answer, temperature=0, **given
        ) as stream:
            parsed = stream.get_final_completion().choices[0].message.parsed
        to.report.result("structured output in a stream", isinstance(parsed, Answer), str(parsed))
    with to.report.guard("response_format json_object"):
        text = to.openai.chat.completions.create(
            messages=CHATS[0], response_format={"type": "json_object"}, temperature=1, seed=1,
            logit_bias={str(to.model.ids("{")[0]): 100, str(to.model.ids("}")[0]): 50}, **given,
        ).choices[0].message.content  # fmt: skip
        value = json.loads(text)
        to.report.result("response_format json_object", isinstance(value, dict), text)
    with to.report.guard("structured output of a completion"):
        schema = {"name": "answer", "schema": Answer.model_json_schema()}
        text = to.openai.completions.create(
            prompt=PROMPTS[0], temperature=0,
            extra_body={"response_format": {"type": "json_schema", "json_schema": schema}}, **given,
        ).choices[0].text  # fmt: skip
        Answer.model_validate_json(text)
        to.report.result("structured output of a completion", True, text)


# Models, embeddings, responses, messages


def models(to):
    listed = to.openai.models.list().data
    to.same("models.list", [model.id for model in listed], [NAME, "alias"])
    to.same("models.retrieve", to.openai.models.retrieve(NAME).id, NAME)
    answer = to.openai.completions.create(
        model="alias", prompt=PROMPTS[0], max_tokens=4, temperature=0
    )
    wanted = to.expected(to.model.ids(PROMPTS[0]), 4)[1]
    to.same("another name of the model", answer.choices[0].text, wanted)


def embeddings(to):
    """The last row or the mean of the last hidden states, with or without length 1."""
    rows = [to.model.hidden_states(to.model.ids(prompt)).numpy() for prompt in PROMPTS]
    pooled = {"last": [row[-1] for row in rows], "mean": [row.mean(0) for row in rows]}

    def unit(vectors):
        return [vector / np.linalg.norm(vector) for vector in np.array(vectors)]

    for form in ("float", "base64", None):
        name = f"embeddings as {form or 'the client likes'}"
        with to.report.guard(name):
            given = {"encoding_format": form} if form else {}
            answer = to.openai.embeddings.create(model=NAME, input=PROMPTS, **given)
            vectors = [one.embedding for one in answer.data]
            if isinstance(vectors[0], str):
                import base64

                vectors = [np.frombuffer(base64.b64decode(one), np.float32) for one in vectors]
            errors = {
                kind: max(np.abs(a - b).max() for a, b in zip(unit(vectors), unit(wanted)))
                for kind, wanted in pooled.items()
            }
            kind = min(errors, key=errors.get)
            to.report.close(f"{name}: {kind}", unit(vectors), unit(pooled[kind]))
            to.same(f"{name}: usage", answer.usage.prompt_tokens, sum(map(len, rows)))
    with to.report.guard("embeddings of ids"):
        answer = to.openai.embeddings.create(
            model=NAME, input=[to.model.ids(prompt) for prompt in PROMPTS]
        )
        texts = to.openai.embeddings.create(model=NAME, input=PROMPTS)
        to.report.close(
            "embeddings of ids",
            [one.embedding for one in answer.data],
            [one.embedding for one in texts.data],
        )


def responses(to):
    turns = [{"role": "user", "content": "What is 2 + 2?"}]
    chat = [{"role": "system", "content": "You are terse."}, *turns]
    ids = to.model.chat_ids(chat)
    made, text, finish = to.expected(ids)
    for form in ("What is 2 + 2?", turns):
        answer = to.openai.responses.create(
            input=form, instructions="You are terse.", max_output_tokens=NUM_NEW, **GREEDY
        )
        name = f"response to a {type(form).__name__}"
        to.same(name, answer.output_text, text)
        to.same(f"{name}, status", answer.status,
                "completed" if finish == "stop" else "incomplete")  # fmt: skip
        to.same(f"{name}, usage", (answer.usage.input_tokens, answer.usage.output_tokens),
                (len(ids), len(made)))  # fmt: skip
    events = list(
        to.openai.responses.create(
            input=turns, instructions="You are terse.", max_output_tokens=NUM_NEW, stream=True,
            **GREEDY,
        )
    )  # fmt: skip
    deltas = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    to.same("response stream", deltas, text)
    to.same("response stream, first event", events[0].type, "response.created")
    to.same("response stream, its last text", events[-1].response.output_text, text)
    to.same("response stream, numbers", [e.sequence_number for e in events],
            list(range(len(events))))  # fmt: skip
    with to.openai.responses.stream(
        input=turns, instructions="You are terse.", max_output_tokens=NUM_NEW, **GREEDY
    ) as stream:
        seen = [event.type for event in stream]
    to.report.result("response stream by its helper", "response.output_text.done" in seen)
    answer = to.openai.responses.create(
        input=turns, max_output_tokens=4, include=["message.output_text.logprobs"], top_logprobs=1,
        **GREEDY,
    )  # fmt: skip
    values = [value.logprob for value in answer.output[0].content[0].logprobs]
    ids = to.model.chat_ids(turns)
    made = to.expected(ids, 4)[0]
    to.report.close("response, log-probabilities", values, to.log_probs(ids, made)[: len(values)])
    counted = to.openai.responses.input_tokens.count(model=NAME, input=turns)
    to.same("responses.input_tokens.count", counted.input_tokens, len(ids))


def messages(to):
    chat = [{"role": "system", "content": "You are terse."}, *CHATS[0]]
    ids = to.model.chat_ids(chat)
    made, text, finish = to.expected(ids)
    reason = "end_turn" if finish == "stop" else "max_tokens"
    given = dict(
        system="You are terse.", messages=CHATS[0], max_tokens=NUM_NEW, **GREEDY_MESSAGE
    )
    answer = to.anthropic.messages.create(**given)
    to.same("message", (answer.content[0].text, answer.stop_reason), (text, reason))
    total = answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)
    to.same("message, usage", (total, answer.usage.output_tokens), (len(ids), len(made)))
    with to.anthropic.messages.stream(**given) as stream:
        to.same("message stream", "".join(stream.text_stream), text)
        last = stream.get_final_message()
    to.same("message stream, the last message", (last.content[0].text, last.stop_reason),
            (text, reason))  # fmt: skip
    to.same("message stream, usage", last.usage.output_tokens, len(made))
    types = [event.type for event in to.anthropic.messages.create(stream=True, **given)]
    to.same("message stream, events", (types[0], types[-1]), ("message_start", "message_stop"))
    stop = text[6:9]
    answer = to.anthropic.messages.create(stop_sequences=[stop], **given)
    to.same("message, stop_sequences", (answer.content[0].text, answer.stop_sequence),
            (text[: text.find(stop)], stop))  # fmt: skip
    counted = to.anthropic.messages.count_tokens(
        model=NAME, system="You are terse.", messages=CHATS[0]
    )
    to.same("messages.count_tokens", counted.input_tokens, len(ids))
    counted = to.anthropic.messages.count_tokens(
        model=NAME, messages=CHATS[0], tools=[ANTHROPIC_TOOL]
    )
    wanted = len(to.model.chat_ids(CHATS[0], tools=[TOOL]))
    to.same("messages.count_tokens with tools", counted.input_tokens, wanted)
    to.same("anthropic models.list", [model.id for model in to.anthropic.models.list()],
            [NAME, "alias"])  # fmt: skip


# Errors, and many clients at once


def openai_errors(to):
    create, chat = to.openai.completions.create, to.openai.chat.completions.create
    bad = openai.BadRequestError
    long = to.model.ids("long ") * 2000
    for name, value in {
        "temperature": -1, "top_p": 7, "n": 0, "max_tokens": -3, "logprobs": "many",
        "stop": {"a": 1}, "logit_bias": {"x": 1}, "seed": "one", "presence_penalty": [],
    }.items():  # fmt: skip
        to.raises(f"BadRequestError for {name}", bad,
                  lambda: create(model=NAME, prompt="a", **{name: value}), name)  # fmt: skip
    to.raises("BadRequestError for an unknown member", bad,
              lambda: create(model=NAME, prompt="a", extra_body={"temprature": 1}),
              "temprature")  # fmt: skip
    to.raises("BadRequestError for a long prompt", bad,
              lambda: create(model=NAME, prompt=long), str(1024))  # fmt: skip
    to.raises("BadRequestError for ids outside the vocabulary", bad,
              lambda: create(model=NAME, prompt=[1, 10**6]), "1000000")  # fmt: skip
    to.raises("BadRequestError for an empty list", bad, lambda: create(model=NAME, prompt=[]),
              "prompt")  # fmt: skip
    to.raises("BadRequestError for no messages", bad, lambda: chat(model=NAME, messages=[]),
              "messages")  # fmt: skip
    to.raises("BadRequestError for a role", bad,
              lambda: chat(model=NAME, messages=[{"role": "critic", "content": ""}]),
              "critic")  # fmt: skip
    to.raises("BadRequestError for an image", bad,
              lambda: chat(model=NAME, messages=[{"role": "user", "content": [
                  {"type": "image_url", "image_url": {"url": "data:"}}]}]),
              "image_url")  # fmt: skip
    to.raises("BadRequestError of a stream", bad,
              lambda: chat(model=NAME, messages=CHATS[0], stream=True, top_p=-1),
              "top_p")  # fmt: skip
    to.raises("BadRequestError of Responses", bad,
              lambda: to.openai.responses.create(model=NAME, input="a", previous_response_id="x"),
              "previous_response_id")  # fmt: skip
    for name, call in {
        "completions": lambda: create(model="other", prompt="a"),
        "chats": lambda: chat(model="other", messages=CHATS[0]),
        "Responses": lambda: to.openai.responses.create(model="other", input="a"),
        "models.retrieve": lambda: to.openai.models.retrieve("other"),
    }.items():
        to.raises(f"NotFoundError of {name}", openai.NotFoundError, call, "other")
    stranger = to.openai.with_options(api_key="wrong")
    for name, call in {
        "completions": lambda: stranger.completions.create(model=NAME, prompt="a"),
        "models.list": lambda: stranger.models.list(),
    }.items():
        to.raises(f"AuthenticationError of {name}", openai.AuthenticationError, call, "401")
    try:
        create(model=NAME, prompt="a", temperature=-1)
    except bad as error:
        to.same("type of an error", error.type, "invalid_request_error")
        to.same("param of an error", error.param, "temperature")
        to.report.result("id of a request that failed", bool(error.request_id), error.request_id)
    try:
        create(model="other", prompt="a")
    except openai.NotFoundError as error:
        to.same("code of an unknown model", error.code, "model_not_found")


def anthropic_errors(to):
    given = dict(max_tokens=4, messages=CHATS[0])
    create = to.anthropic.messages.create
    bad = anthropic.BadRequestError
    to.raises("anthropic BadRequestError", bad,
              lambda: create(model=NAME, extra_body={"temperature": -1}, **given), "temperature",
              "invalid_request_error")  # fmt: skip
    to.raises("anthropic BadRequestError for no messages", bad,
              lambda: create(model=NAME, max_tokens=4, messages=[]), "messages")  # fmt: skip
    to.raises("anthropic BadRequestError of count_tokens", bad,
              lambda: to.anthropic.messages.count_tokens(model=NAME, messages=[]),
              "messages")  # fmt: skip
    to.raises("anthropic NotFoundError", anthropic.NotFoundError,
              lambda: create(model="other", **given), "other", "not_found_error")  # fmt: skip
    stranger = to.anthropic.with_options(api_key="wrong")
    to.raises("anthropic AuthenticationError", anthropic.AuthenticationError,
              lambda: stranger.messages.create(model=NAME, **given),
              "authentication_error")  # fmt: skip


def together(to):
    """Answers that are computed together are those of each alone."""
    prompts = [prompt + f" {number}" for number in range(8) for prompt in PROMPTS]

    async def one(client, prompt):
        text = ""
        stream = await client.completions.create(
            prompt=prompt, max_tokens=NUM_NEW, stream=True, **GREEDY
        )
        async for event in stream:
            text += event.choices[0].text if event.choices else ""
        return text

    async def every():
        async with openai.AsyncOpenAI(base_url=f"{to.server.url}/v1", api_key=KEY) as client:
            return await asyncio.gather(*(one(client, prompt) for prompt in prompts))

    texts = asyncio.run(every())
    wrong = [
        prompt
        for prompt, text in zip(prompts, texts, strict=True)
        if text != to.expected(to.model.ids(prompt))[1]
    ]
    to.report.result(f"{len(prompts)} streams at once", not wrong, f"{wrong}" if wrong else "")


CHECKS = [
    completions, completion_samples, completion_stop, completion_echo, completion_streams, chats,
    chat_streams, chat_samples, tools, forced_tools, structured_output, models, embeddings,
    responses, messages, openai_errors, anthropic_errors, together,
]  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as work, report.guard("server"):
        model = ChatModel(Path(work) / "model")
        flags = ("--served-model-name", NAME, "alias", "--api-key", KEY)
        with Server(model.folder, *flags, log=Path(work) / "log") as server:
            to = Clients(report, model, server)
            for check in CHECKS:
                if check.__name__.startswith(options.only):
                    with report.guard(check.__name__):
                        check(to)
        report.result("the server ends at SIGTERM", server.code == 143, f"exit {server.code}")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
