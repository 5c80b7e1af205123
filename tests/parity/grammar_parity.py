"""Validates texts that `generate --guided-json` says by the package jsonschema.

A random model says several texts for each schema: one of each keyword, random ones, and those of
the JSON Schema test suite, which jsonschema's source archive holds. Each text that ends by itself
must be JSON that is valid. A schema of the suite may be refused, for a keyword that is not
supported; the others must not be."""
import importlib.metadata
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from jsonschema import Draft202012Validator
from transformers import LlamaConfig, LlamaForCausalLM

import program
from report import Report

NUM_RANDOM = int(os.environ.get("GRAMMAR_SCHEMAS", "50"))
TEXTS = 8
SHARE_ENDED = 0.5  # of all texts, at least
LEAST_OF_SUITE = 150
# Why a schema of the suite may be refused.
REFUSALS = ["not supported", "is not in this schema", "not told apart", "no text fits", "a count"]

SCHEMAS = [
    *({"type": name} for name in ("null", "boolean", "integer", "number", "string")),
    {"type": "object"}, {"type": "array"}, {}, True, {"type": ["string", "null"]},
    {"enum": [1, "a", None, [1], {"a": 2}]}, {"const": "é\"\\\n"}, {"const": 1.5},
    {"type": "integer", "enum": [1, 2.5, "x"]},
    {"type": "integer", "minimum": 0}, {"type": "integer", "maximum": -3},
    {"type": "integer", "exclusiveMinimum": 99, "maximum": 1000},
    {"type": "integer", "minimum": -1234, "exclusiveMaximum": 17},
    {"type": "number", "minimum": 0.25}, {"type": "number", "exclusiveMaximum": 0},
    {"type": "number", "exclusiveMinimum": -1.5, "maximum": 12.75},
    {"type": "number", "minimum": 5, "maximum": 5}, {"type": "number", "minimum": 1e3},
    {"type": "string", "minLength": 3}, {"type": "string", "maxLength": 5},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "string", "pattern": "^[a-z]{2,5}$"}, {"type": "string", "pattern": "b"},
    {"type": "string", "pattern": "^a|b$"},
    {"type": "string", "pattern": "\\d+\\.\\d", "maxLength": 6},
    {"pattern": "^(\"|\\\\|\\n|é){1,4}$"}, {"pattern": "^[^a-c]*$", "maxLength": 7},
    *({"type": "string", "format": name} for name in (
        "date", "time", "date-time", "uuid", "email", "ipv4", "ipv6", "uri", "hostname",
        "duration")),
    {"items": {"type": "integer"}}, {"items": {"type": "null"}, "minItems": 2, "maxItems": 4},
    {"prefixItems": [{"type": "integer"}, {"type": "string"}]},
    {"prefixItems": [{"type": "integer"}], "items": False, "minItems": 1},
    {"prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 3},
    {"type": "array", "maxItems": 0}, {"type": "array", "items": False},
    {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    {"properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"]},
    {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "boolean"}},
    {"properties": {"a": {"type": "null"}}, "additionalProperties": False, "required": ["a"]},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "required": ["x"]},
    {"patternProperties": {"^a": {"type": "integer"}}},
    {"patternProperties": {"^a": {"type": "integer"}, "z$": {"type": "null"}}},
    {"properties": {"ab": {"minimum": 3}}, "patternProperties": {"^a": {"type": "integer"}}},
    {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": {"type": "null"}},
    {"type": "object", "propertyNames": {"pattern": "^[x-z]{1,2}$"}},
    {"type": "object", "propertyNames": {"maxLength": 2}, "additionalProperties": {"const": 0}},
    {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    {"anyOf": [{"type": "integer", "minimum": 5}, {"const": 1}], "type": "integer"},
    {"oneOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
    {"oneOf": [
        {"properties": {"k": {"const": "a"}, "v": {"type": "integer"}}, "required": ["k", "v"]},
        {"properties": {"k": {"enum": ["b", "c"]}}, "required": ["k"]}]},
    {"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 9}]},
    {"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}, {"maxLength": 4}]},
    {"allOf": [{"properties": {"a": {"type": "number"}}, "required": ["a"]},
               {"properties": {"a": {"type": "integer"}, "b": {"type": "null"}}}]},
    {"allOf": [{"properties": {"a": {}, "b": {}}, "additionalProperties": False},
               {"properties": {"a": {"type": "null"}}, "required": ["a"]}]},
    {"$ref": "#/$defs/list", "$defs": {"list": {
        "type": "object", "required": ["next"], "additionalProperties": False,
        "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/list"}]}}}}},
    {"properties": {"a": {"$ref": "#"}, "a/b": {"$ref": "#/properties/a~1c"},
                    "a/c": {"type": "boolean"}}},
    {"$ref": "#/$defs/x", "minimum": 3, "$defs": {"x": {"type": "integer"}}},
]  # fmt: skip


def random_schema(rng, depth):
    """A schema of the keywords that are supported."""
    kinds = ["integer", "number", "string", "enum", "null", "boolean"]
    kind = rng.choice(kinds + ["array", "object", "anyOf"] * (depth > 0))
    if kind in ("null", "boolean"):
        return {"type": kind}
    if kind == "enum":
        values = [0, 1, -7, "", "a", "é", None, True, [1], {"x": 1}]
        return {"enum": rng.sample(values, rng.randint(1, 4))}
    if kind in ("integer", "number"):
        schema = {"type": kind}
        low = rng.randint(-300, 300) if kind == "integer" else rng.randint(-3000, 3000) / 100
        if rng.random() < 0.6:
            schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.6:
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.randint(2, 500)
        return schema
    if kind == "string":
        schema = {"type": "string"}
        if rng.random() < 0.4:
            schema["minLength"] = rng.randint(0, 4)
        if rng.random() < 0.6:
            schema["maxLength"] = rng.randint(4, 9)
        if rng.random() < 0.4:
            schema["pattern"] = rng.choice(["^[a-f]+$", "x", "^\\d", "(ab|cd)$", "^é?[^0-9]*$"])
        return schema
    if kind == "array":
        schema = {"type": "array", "items": random_schema(rng, depth - 1)}
        if rng.random() < 0.5:
            schema["minItems"] = rng.randint(0, 2)
        if rng.random() < 0.7:
            schema["maxItems"] = rng.randint(2, 4)
        if rng.random() < 0.3:
            schema["prefixItems"] = [random_schema(rng, depth - 1)]
        return schema
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    names = rng.sample(["a", "b", "ab", "é", "x y", 'q"'], rng.randint(0, 4))
    properties = {name: random_schema(rng, depth - 1) for name in names}
    schema = {"type": "object", "properties": properties}
    schema["required"] = [name for name in names if rng.random() < 0.5]
    choice = rng.random()
    if choice < 0.3:
        schema["additionalProperties"] = random_schema(rng, 0)
    elif choice < 0.6:
        schema["additionalProperties"] = False
    return schema


def suite_schemas(work):
    """Those of the JSON Schema test suite, draft 2020-12; none where it cannot be fetched."""
    wanted = f"jsonschema=={importlib.metadata.version('jsonschema')}"
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary"]
    if subprocess.run([*command, "jsonschema", "-d", work, wanted]).returncode != 0:
        print("!! SKIPPED: the source of jsonschema, with the test suite, cannot be fetched")
        return []
    schemas = []
    with tarfile.open(next(work.glob("jsonschema-*.tar.gz"))) as archive:
        for member in archive.getmembers():
            parts = Path(member.name).parts
            if parts[1:-1] == ("json", "tests", "draft2020-12") and member.isfile():
                schemas += [group["schema"] for group in json.load(archive.extractfile(member))]
    return schemas


def write_model(folder):
    """A model of bytes, whose end is 256."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=264, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=1024, bos_token_id=None, eos_token_id=256,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


def texts_of(model, work, number, schema):
    file = work / f"{number}.json"
    file.write_text(json.dumps(schema))
    done = program.run(
        "generate",
        *("--load", model, "--tokenizer-type", "ByteTokenizer", "--prompt", "Say JSON: "),
        *("--guided-json", file, "--n", TEXTS, "--seed", number, "--max-new-tokens", 300),
        # End tokens, quotes and closing brackets come often.
        *("--logit-bias", "256:4,34:3,93:3,125:3", "--json"),
    )
    answer = json.loads(next(line for line in done.stdout.split("\n") if line.startswith("{")))
    return answer["choices"]


def main():
    report = Report()
    rng = random.Random(5)
    schemas = SCHEMAS + [random_schema(rng, 3) for _ in range(NUM_RANDOM)]
    num_texts = num_ended = num_refused = 0
    checker = Draft202012Validator.FORMAT_CHECKER
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        work = Path(name)
        num_own = len(schemas)
        schemas += suite_schemas(work)
        write_model(work / "model")
        runs = [
            pool.submit(texts_of, work / "model", work, number, schema)
            for number, schema in enumerate(schemas)
        ]
        for number, (schema, run) in enumerate(zip(schemas, runs, strict=True)):
            wrong = []
            try:
                choices = run.result()
            except program.ProgramError as error:
                is_named = number >= num_own and any(words in str(error) for words in REFUSALS)
                num_refused += is_named
                if not is_named:
                    report.result(json.dumps(schema), False, str(error))
                continue
            for choice in choices:
                num_texts += 1
                if choice["finish_reason"] != "stop":
                    continue
                num_ended += 1
                try:
                    value = json.loads(choice["text"])
                    Draft202012Validator(schema, format_checker=checker).validate(value)
                except Exception as error:  # of the parser or the validator
                    wrong.append(f"{choice['text']!r}: {str(error).splitlines()[0]}")
            report.result(json.dumps(schema)[:80], not wrong, "; ".join(wrong))
    num_suite = len(schemas) - num_own
    if num_suite > 0:
        supported = num_suite - num_refused
        report.result(
            "schemas of the suite that are supported",
            supported >= LEAST_OF_SUITE,
            f"{supported} of {num_suite}",
        )
    report.result(
        "texts that end", num_ended >= SHARE_ENDED * num_texts, f"{num_ended} of {num_texts}"
    )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
