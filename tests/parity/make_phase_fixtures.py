"""Writes tests/config/fixtures/data_phases.json.

The numbers come from Megatron-LM's own code.

    python tests/parity/make_phase_fixtures.py TRAINING.py

TRAINING.py is megatron/training/training.py of Megatron-LM 0.18 or later. The script runs its
get_train_valid_test_num_samples(), and the statement of build_train_valid_test_data_loaders() that
counts the samples consumed in the phase, without importing the rest. Every case lists the flags
and, for each iteration, the samples of the phase and those consumed of them.
"""
import ast
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

OUTPUT = Path(__file__).resolve().parents[1] / "config/fixtures/data_phases.json"


def function_of(tree, name):
    return next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)


def compiled(statements, path):
    return compile(ast.Module(body=statements, type_ignores=[]), path, "exec")


def megatron(path):
    """Returns a function of args: (samples of the phase, consumed samples of the phase)."""
    tree = ast.parse(Path(path).read_text())
    sizes = compiled([function_of(tree, "get_train_valid_test_num_samples")], path)
    loaders = function_of(tree, "build_train_valid_test_data_loaders")
    counting = next(
        n
        for n in loaders.body
        if isinstance(n, ast.If) and "phase_transition_iterations" in ast.unparse(n.test)
    )
    counting = compiled([counting], path)

    def numbers(args):
        names = {"get_args": lambda: args, "args": args}
        exec(sizes, names)
        exec(counting, names)
        return [
            names["get_train_valid_test_num_samples"]()[0],
            names["consumed_train_samples_in_current_phase"],
        ]

    return numbers


def cases():
    rng = random.Random(5)
    yield dict(size=4, samples=32, transitions=[])
    yield dict(size=4, samples=32, transitions=[2])
    yield dict(size=4, samples=33, transitions=[2, 5])
    yield dict(size=4, samples=35, transitions=[5, 2])
    yield dict(size=1, samples=6, transitions=[3, 3])
    for _ in range(12):
        size, iterations = rng.randint(1, 512), rng.randint(3, 12)
        yield dict(
            size=size,
            samples=size * iterations + rng.randrange(size),
            transitions=rng.sample(range(1, iterations), rng.randint(1, 2)),
        )


def main():
    numbers = megatron(sys.argv[1])
    results = []
    for case in cases():
        iterations = case["samples"] // case["size"]
        rows = [
            numbers(
                SimpleNamespace(
                    train_samples=case["samples"],
                    train_iters=iterations,
                    global_batch_size=case["size"],
                    iteration=iteration,
                    consumed_train_samples=iteration * case["size"],
                    # arguments.py sorts them
                    phase_transition_iterations=sorted(case["transitions"]) or None,
                    full_validation=False,
                    skip_train=False,
                    eval_iters=0,
                    eval_interval=1,
                    start_eval_at_iter=None,
                )
            )
            for iteration in range(iterations)
        ]
        results.append({**case, "phases": rows})
    OUTPUT.write_text("[\n" + ",\n".join(json.dumps(result) for result in results) + "\n]\n")
    print(f"wrote {OUTPUT}")


if __name__ == "__main__":
    main()
