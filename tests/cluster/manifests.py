"""Kubernetes manifests: reads their YAML, refuses unknown fields, and tells how a pod of them is
started."""
import re

from hosts import RecipeError

ANY = None
# The fields that recipes may use: {name: fields} is a mapping, [x] a list of x, ANY anything.
# Checked against the CRDs of JobSet v1alpha2, Kubeflow Trainer v1alpha1 and PyTorchJob v1.
METADATA = {"name": ANY, "labels": ANY}
CONTAINER = {
    "name": ANY,
    "image": ANY,
    "command": [ANY],
    "args": [ANY],
    "env": [{"name": ANY, "value": ANY, "valueFrom": {"secretKeyRef": {"name": ANY, "key": ANY}}}],
    "ports": [{"name": ANY, "containerPort": ANY}],
    "resources": {"limits": ANY},
    "volumeMounts": [{"name": ANY, "mountPath": ANY}],
}
POD = {
    "restartPolicy": ANY,
    "terminationGracePeriodSeconds": ANY,
    "containers": [CONTAINER],
    "volumes": [
        {"name": ANY, "persistentVolumeClaim": {"claimName": ANY}, "emptyDir": {"medium": ANY}}
    ],
}
JOB = {
    "completionMode": ANY,
    "parallelism": ANY,
    "completions": ANY,
    "backoffLimit": ANY,
    "successPolicy": {"rules": [{"succeededIndexes": ANY}]},
    "podFailurePolicy": {
        "rules": [
            {
                "action": ANY,
                "onExitCodes": {"containerName": ANY, "operator": ANY, "values": [ANY]},
                "onPodConditions": [{"type": ANY}],
            }
        ]
    },
    "template": {"spec": POD},
}
JOBSET = {
    "network": {"enableDNSHostnames": ANY, "publishNotReadyAddresses": ANY, "subdomain": ANY},
    "failurePolicy": {
        "maxRestarts": ANY,
        "rules": [{"name": ANY, "action": ANY, "onJobFailureReasons": [ANY]}],
    },
    "replicatedJobs": [
        {"name": ANY, "replicas": ANY, "template": {"metadata": METADATA, "spec": JOB}}
    ],
}
SPECS = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): JOBSET,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): {
        "mlPolicy": {"numNodes": ANY, "torch": {}},
        "template": {"spec": JOBSET},
    },
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): {
        "runtimeRef": {"kind": ANY, "name": ANY},
        "trainer": {
            "numNodes": ANY,
            "numProcPerNode": ANY,
            "command": [ANY],
            "args": [ANY],
            "env": CONTAINER["env"],
            "resourcesPerNode": {"limits": ANY},
        },
    },
    ("kubeflow.org/v1", "PyTorchJob"): {
        "nprocPerNode": ANY,
        "runPolicy": {"backoffLimit": ANY, "cleanPodPolicy": ANY},
        "elasticPolicy": {
            "rdzvBackend": ANY,
            "minReplicas": ANY,
            "maxReplicas": ANY,
            "maxRestarts": ANY,
        },
        "pytorchReplicaSpecs": {
            "Worker": {"replicas": ANY, "restartPolicy": ANY, "template": {"spec": POD}}
        },
    },
}


def scalar(text):
    if text.startswith("[") and text.endswith("]"):
        return [scalar(part.strip()) for part in text[1:-1].split(",")]
    if text == "{}":
        return {}
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    return text[1:-1] if re.fullmatch(r'"[^"\\]*"', text) else text


def read_block(lines, at, indent):
    """Reads the mapping or list whose lines start in column `indent`, from line `at` on. Returns it
    and the line after it."""
    result = [] if re.match(r"- |-$", lines[at][1]) else {}
    while at < len(lines) and lines[at][0] == indent:
        text = lines[at][1]
        if isinstance(result, list):
            if not text.startswith("- "):
                break
            if re.match(r"- [\w./-]+:( |$)", text):
                lines[at] = (indent + 2, text[2:])
                value, at = read_block(lines, at, indent + 2)
            else:
                value, at = scalar(text[2:]), at + 1
            result.append(value)
            continue
        name, colon, rest = text.partition(":")
        if not colon or name in result:
            raise RecipeError(f"'{text}' is no YAML that the test reads, or there twice")
        at += 1
        if rest:
            result[name] = scalar(rest.strip())
        else:
            deeper = at < len(lines) and lines[at][0] > indent
            result[name], at = read_block(lines, at, lines[at][0]) if deeper else (None, at)
    if at < len(lines) and lines[at][0] > indent:
        raise RecipeError(f"'{lines[at][1]}' is indented too far")
    return result, at


def read_manifests(text):
    """Reads the part of YAML that recipes use: mappings, lists, one-line values and comments."""
    documents = []
    for document in re.split(r"^---$", text, flags=re.M):
        kept = [re.sub(r"(^|\s)#.*", "", line).rstrip() for line in document.splitlines()]
        lines = [(len(line) - len(line.lstrip()), line.strip()) for line in kept if line]
        manifest, end = read_block(lines, 0, 0)
        if end != len(lines):
            raise RecipeError(f"'{lines[end][1]}' is indented in another way")
        key = (manifest["apiVersion"], manifest["kind"])
        if key not in SPECS:
            raise RecipeError(f"{key} is unknown")
        fields = {"apiVersion": ANY, "kind": ANY, "metadata": METADATA, "spec": SPECS[key]}
        check_fields(manifest, fields, manifest["kind"])
        documents.append(manifest)
    return documents


def check_fields(value, fields, path):
    if fields is ANY:
        return
    if isinstance(fields, list):
        if not isinstance(value, list):
            raise RecipeError(f"{path} must be a list")
        for index, item in enumerate(value):
            check_fields(item, fields[0], f"{path}[{index}]")
        return
    if not isinstance(value, dict):
        raise RecipeError(f"{path} must be a mapping")
    for name, item in value.items():
        if name not in fields:
            raise RecipeError(f"{path}.{name}: there is no such field")
        check_fields(item, fields[name], f"{path}.{name}")


def pod_environment(container):
    """The variables of `env`. The secret is the one that the recipe's header creates."""
    found = {}
    for variable in container.get("env", []):
        if "value" in variable:
            found[variable["name"]] = variable["value"]
        elif variable["valueFrom"]["secretKeyRef"] == {"name": "gpt-token", "key": "token"}:
            found[variable["name"]] = "the token of the secret"
        else:
            raise RecipeError(f"{variable}: the header creates another secret")
    return found


def check_pod(pod):
    """Checks what only the cluster would notice."""
    volumes = {volume["name"] for volume in pod["volumes"]}
    for mount in pod["containers"][0]["volumeMounts"]:
        if mount["name"] not in volumes:
            raise RecipeError(f"the volume {mount['name']} is not declared")
    if pod["terminationGracePeriodSeconds"] < 60:
        raise RecipeError("there is no time to save")


def action_on_exit(job, code):
    """What the job does when its container has ended with `code`."""
    for rule in job["podFailurePolicy"]["rules"]:
        codes = rule.get("onExitCodes")
        if codes and codes["containerName"] == job["template"]["spec"]["containers"][0]["name"]:
            if codes["operator"] == "In" and code in codes["values"]:
                return rule["action"]
    return "Count"
