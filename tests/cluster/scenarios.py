"""The scenarios of run.py: what happens to the hosts of each recipe, and what must come of it."""
import signal
from pathlib import Path

from hosts import RecipeError, free_port
from manifests import action_on_exit, check_pod, pod_environment, read_manifests

FOREVER = 1_000_000  # steps
RANKS = (r"--nproc-per-node([ =])8\b", r"--nproc-per-node\g<1>2")
SAVES = (r"--save-interval([ =])500\b", r"--save-interval\g<1>20")
PORT = r"\b29500\b"
SBATCH_OPTIONS = set(
    "job-name nodes ntasks-per-node gpus-per-node cpus-per-task exclusive time signal requeue "
    "no-kill open-mode output".split()
)


def expect(condition, text):
    if not condition:
        raise RecipeError(text)


def expect_codes(hosts, codes):
    found = [host.wait() for host in hosts]
    expect(found == codes, f"exit codes {found} instead of {codes}")


def expect_token(hosts):
    """Every launcher must have the secret, and the same one."""
    tokens = set()
    for host in hosts:
        expect(host.is_running(), "a launcher has ended at once")
        variables = Path(f"/proc/{host.pid}/environ").read_text().split("\0")
        tokens.add(next((v for v in variables if v.startswith("MEGATRON_JOB_TOKEN=")), ""))
    expect(len(tokens) == 1 and "" not in tokens, f"the launchers have the secrets {tokens}")


def lose_and_regain(cluster, add, is_elastic=True, loses_rank_0=False):
    """Loses the second host of a run of two, or that of rank 0, and starts another by `add`."""
    cluster.wait_for("using world size: 4")
    cluster.wait_for("successfully saved checkpoint")
    has_rank_0 = "using world size" in cluster.hosts[0].output()
    smaller = cluster.count("using world size: 2")  # the first host may have begun alone
    cluster.hosts[0 if loses_rank_0 and has_rank_0 else 1].kill()
    if is_elastic:
        cluster.wait_for("using world size: 2", smaller + 1)
    else:
        cluster.wait_for("waiting: 1 of 2 hosts is available")
    whole = cluster.count("using world size: 4")
    added = add()
    cluster.wait_for("using world size: 4", whole + 1)
    return added


def lose_and_finish(cluster, first, start, is_elastic=True):
    """Loses the second host, starts another by `start`, and lets the run finish soon after."""

    def add():
        cluster.end_after(cluster.last_iteration() + 200)
        return start()

    added = lose_and_regain(cluster, add, is_elastic)
    expect_codes([first, added], [0, 0])


# Slurm ------------------------------------------------------------------------------------------


def batch_environment(script, job, restarts, overrides):
    """What sbatch makes of the script's directives: the variables of its batch step."""
    options = dict(overrides)
    for line in script.splitlines():
        if not line.startswith("#SBATCH "):
            continue
        for word in line.split()[1:]:
            name, _, value = word.removeprefix("--").partition("=")
            expect(name in SBATCH_OPTIONS, f"sbatch: unrecognized option '--{name}'")
            options.setdefault(name, value)
    expect(options["ntasks-per-node"] == "1", "there must be one launcher for each host")
    expect("requeue" in options, "sbatch: without --requeue the job cannot be requeued")
    expect(options["signal"].startswith("USR1@"), "the ranks get no signal before the end")
    nodes = options["nodes"]
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NODELIST": "127.0.0.1" if nodes == "1" else f"127.0.0.[1-{nodes}]",
        "SLURM_TASKS_PER_NODE": "1" if nodes == "1" else f"1(x{nodes})",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_CPUS_PER_TASK": options["cpus-per-task"],
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        **({"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}),
    }


def submit(cluster, recipe, job, restarts=0, variables=None, **overrides):
    """Runs the batch script. It is no host: it only starts them."""
    script = cluster.text(recipe)
    (cluster.folder / "batch").write_text(script)
    environment = batch_environment(script, job, restarts, overrides)
    host = cluster.start(["bash", "batch"], {**environment, **(variables or {})})
    cluster.hosts.remove(host)
    cluster.batches.append(host)
    return host


def requeued(cluster):
    log = cluster.folder / "requeued"
    return log.read_text().split() if log.exists() else []


def slurm(cluster, recipe):
    job = cluster.port  # the port of the run is made from it
    cluster.end_after(FOREVER)
    batch = submit(cluster, recipe, job)
    hosts = [cluster.started_by_stand_in(f"task{node}-{job}") for node in range(2)]
    cluster.wait_for("using world size: 4")
    expect_token(hosts)
    cluster.wait_for("iteration       30/")
    for host in hosts:  # --signal goes to the tasks of all steps
        host.send(signal.SIGUSR1)
    expect(batch.wait() == 143, "the job did not save and stop")
    expect(requeued(cluster) == [str(job)], "the job was not requeued")

    done = cluster.last_iteration()
    cluster.end_after(done + 5)
    for host in hosts:
        (cluster.folder / f"{host.log.stem}.pid").unlink()
    batch = submit(cluster, recipe, job, restarts=1)
    expect(batch.wait() == 0, "the requeued job has failed")
    expect(requeued(cluster) == [str(job)], "the job was requeued although it has ended")
    expect(cluster.last_iteration() == done + 5, "the requeued job has not gone on")


def slurm_elastic(cluster, recipe):
    cluster.end_after(FOREVER)
    batch = submit(cluster, recipe, 7)
    first, second = [cluster.started_by_stand_in(f"task{node}-7") for node in range(2)]
    expect_token([first, second])

    def add():
        cluster.end_after(cluster.last_iteration() + 200)
        submit(cluster, recipe, 8, nodes="1", variables={"MASTER_ADDR": "127.0.0.1"})
        host = cluster.started_by_stand_in("task0-8")
        expect_token([first, host])
        return host

    lose_and_regain(cluster, add)
    expect(batch.wait() == 137, "srun must return how the lost task has ended")
    expect(cluster.batches[-1].wait() == 0, "the job that joined has failed")
    expect(requeued(cluster) == ["7"], "the job with a lost host was not requeued")


# Kubernetes -------------------------------------------------------------------------------------


def replaced_address(words, name):
    """Replaces the name that the controller gives to the first pod."""
    address = f"--master-addr={name}"
    expect(address in words, f"the first pod is {name}, which {words} does not name")
    return ["--master-addr=127.0.0.1" if word == address else word for word in words]


def jobset(cluster, recipe):
    (manifest,) = read_manifests(cluster.text(recipe))
    (replicated,) = manifest["spec"]["replicatedJobs"]
    job, name = replicated["template"]["spec"], manifest["metadata"]["name"]
    pod = job["template"]["spec"]
    check_pod(pod)
    expect(job["completionMode"] == "Indexed" and job["completions"] == 2, "it has no two indices")
    actions = [action_on_exit(job, code) for code in (1, 2, 137, 143)]
    expect(actions == ["Count", "FailJob", "Count", "Ignore"], f"exit codes lead to {actions}")
    (container,) = pod["containers"]
    words = container["command"] + container["args"]
    words = replaced_address(words, f"{name}-{replicated['name']}-0-0.{name}")

    def start(index):
        variables = {**pod_environment(container), "JOB_COMPLETION_INDEX": str(index)}
        return cluster.start(words, variables)

    cluster.end_after(FOREVER)
    first = start(0)
    cluster.wait_for_port()
    start(1)
    third = lose_and_regain(cluster, lambda: start(1))
    cluster.wait_for_training(4)
    third.send(signal.SIGTERM)  # an eviction: the run continues without the pod
    expect_codes([third], [143])
    cluster.wait_for_training(2)
    fourth = start(1)
    cluster.wait_for_training(4)
    first.send(signal.SIGTERM)  # that of the first pod ends the run
    expect_codes([first, fourth], [143, 143])
    cluster.end_after(cluster.last_iteration() + 5)
    again = [start(0)]
    cluster.wait_for_port()
    again.append(start(1))
    expect_codes(again, [0, 0])


def trainjob(cluster, recipe):
    runtime, manifest = read_manifests(cluster.text(recipe))
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    pod, trainer = replicated["template"]["spec"]["template"]["spec"], manifest["spec"]["trainer"]
    check_pod(pod)
    labels = replicated["template"]["metadata"]["labels"]
    expect(labels == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}, "no trainer")
    expect(replicated["name"] == "node" and pod["containers"][0]["name"] == "node", "no node")
    expect(manifest["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"], "no runtime")
    expect(trainer["numNodes"] == 2, "the test starts two pods")

    def start(index):
        variables = {
            **pod_environment(trainer),
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": str(cluster.port),
            "JOB_COMPLETION_INDEX": str(index),
        }
        return cluster.start(trainer["command"] + trainer["args"], variables)

    cluster.end_after(FOREVER)
    first = start(0)
    start(1)

    lose_and_finish(cluster, first, lambda: start(1), is_elastic=False)


def pytorchjob(cluster, recipe):
    (manifest,) = read_manifests(cluster.text(recipe))
    spec, name = manifest["spec"], manifest["metadata"]["name"]
    worker, elastic = spec["pytorchReplicaSpecs"]["Worker"], spec["elasticPolicy"]
    pod = worker["template"]["spec"]
    check_pod(pod)
    (container,) = pod["containers"]
    expect(container["name"] == "pytorch", "the container must be called pytorch")
    expect(container["ports"][0]["name"] == "pytorchjob-port", "the port must be named")
    words = replaced_address(container["command"] + container["args"], f"{name}-worker-0")

    def start():
        variables = {
            **pod_environment(container),
            "PYTHONUNBUFFERED": "1",
            "PET_NPROC_PER_NODE": spec["nprocPerNode"],
            "PET_RDZV_ENDPOINT": f"{name}-worker-0:{cluster.port}",
            "PET_RDZV_BACKEND": elastic["rdzvBackend"],
            "PET_NNODES": f"{elastic['minReplicas']}:{elastic['maxReplicas']}",
            "PET_MAX_RESTARTS": str(elastic["maxRestarts"]),
        }
        return cluster.start(words, variables)

    cluster.end_after(FOREVER)
    first = start()
    cluster.wait_for_port()
    start()

    lose_and_finish(cluster, first, start)


# torchrun and MPI -------------------------------------------------------------------------------


def torchrun_static(cluster, recipe):
    cluster.end_after(6)
    script = cluster.text(recipe)
    (cluster.folder / "torchrun.sh").write_text(script)
    variables = {"PORT": str(cluster.port)}
    for rank in ("0", "1"):
        cluster.start(["bash", "torchrun.sh", "static", rank, "127.0.0.1"], variables)
    expect_codes(cluster.hosts, [0, 0])
    cluster.wait_for("using world size: 4")


def torchrun_elastic(cluster, recipe):
    cluster.end_after(FOREVER)
    (cluster.folder / "torchrun.sh").write_text(cluster.text(recipe))

    def start():
        variables = {"PORT": str(cluster.port), "MEGATRON_JOB_TOKEN": "a secret"}
        return cluster.start(["bash", "torchrun.sh", "elastic", "127.0.0.1"], variables)

    first = start()
    cluster.wait_for_port()
    start()

    lose_and_finish(cluster, first, start)


def torchrun_etcd(cluster, recipe):
    """No host is special: the one of rank 0 is lost."""
    cluster.end_after(FOREVER)
    (cluster.folder / "torchrun.sh").write_text(cluster.text(recipe))
    client, peer = (f"http://127.0.0.1:{port}" for port in (cluster.port, free_port()))
    server = cluster.start(
        f"etcd --enable-v2 --data-dir etcd --listen-client-urls {client} --advertise-client-urls "
        f"{client} --listen-peer-urls {peer}".split(),
        {},
    )
    cluster.hosts.remove(server)
    cluster.batches.append(server)
    cluster.wait_for_port()

    def start():
        variables = {"MEGATRON_JOB_TOKEN": "a secret"}
        address = f"127.0.0.1:{cluster.port}"
        return cluster.start(["bash", "torchrun.sh", "etcd", address], variables)

    start(), start()

    def add():
        cluster.end_after(cluster.last_iteration() + 200)
        return start()

    added = lose_and_regain(cluster, add, loses_rank_0=True)
    expect_codes([host for host in cluster.hosts[:2] if host.is_running()] + [added], [0, 0])


def mpirun(cluster, recipe):
    cluster.end_after(6)
    (cluster.folder / "mpirun.sh").write_text(cluster.text(recipe))
    (cluster.folder / "hosts").write_text("# the hosts\n127.0.0.1\n127.0.0.2\n")
    script = cluster.start(["bash", "mpirun.sh", "hosts"], {})
    cluster.hosts.remove(script)
    cluster.batches.append(script)
    hosts = [cluster.started_by_stand_in(f"task{rank}") for rank in range(2)]
    expect_token(hosts)
    expect(script.wait() == 0, "the run has failed")
    expect(cluster.last_iteration() == 6, "the run has not ended")
