"""Compares families with recurrent layers with transformers: Mamba-2 and gated delta nets.

As hf_parity.py: log-probabilities, loss, every gradient, the round trip and greedy text. As
generation_parity.py: the tokens of several prompts in the passes of one engine, whose states come
from a scan of the prompt and then change token by token, and the log-probabilities of both.
"""
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import generation_parity
import hf_parity
import hf_variants_hybrid
from report import Report

SEED = 11


def main():
    report = Report()
    wanted = sys.argv[1:]
    with ThreadPoolExecutor(1) as pool:
        for variant in hf_variants_hybrid.variants():
            if wanted and variant.name not in wanted:
                continue
            with tempfile.TemporaryDirectory() as work, report.guard(variant.name):
                hf_parity.check_variant(report, variant, Path(work))
            with tempfile.TemporaryDirectory() as work, report.guard(f"{variant.name}, texts"):
                generation_parity.compare(report, variant, SEED, Path(work), pool)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
