"""Writes fixtures/decode_stream.jsonl: the pieces of text that the `tokenizers` package's own
DecodeStream gives for ids of the tokenizers in fixtures/.

Each line holds {"model", "ids", "pieces"}; a piece is null where the package waits. Run it after
make_fixtures.py, from anywhere.
"""
import json
import pathlib

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

FIXTURES = pathlib.Path(__file__).resolve().parent / "fixtures"
MODELS = ("gpt2", "llama3", "qwen2", "t5", "bert", "metaspace", "llama2")


def main():
    with open(FIXTURES / "decode_stream.jsonl", "w") as file:
        for model in MODELS:
            tokenizer = Tokenizer.from_file(str(FIXTURES / f"{model}.json"))
            for line in (FIXTURES / f"{model}.jsonl").read_text().splitlines()[:40]:
                ids = json.loads(line)["ids"]
                stream = DecodeStream(skip_special_tokens=True)
                try:
                    pieces = [stream.step(tokenizer, i) for i in ids]
                except Exception:  # the package gives up where a decoder takes text back
                    continue
                file.write(json.dumps({"model": model, "ids": ids, "pieces": pieces}) + "\n")


if __name__ == "__main__":
    main()
